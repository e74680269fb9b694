package settings

import (
	"regexp"
	"strings"
)

// Bounds of ADMIN_TOKEN, in characters. It can be tried as often as a client likes, so it must not be
// possible to guess it.
const (
	shortestAdminToken = 16
	longestAdminToken  = 512
)

// parseAdmin reads where the admin server listens and whom it answers.
func parseAdmin(env Environment, problems *Problems, s *Settings) {
	if s.AdminAddr = env.AdminAddr; s.AdminAddr != "" {
		checkAddr(problems, "ADMIN_ADDR", s.AdminAddr)
	}
	if s.AdminToken = env.AdminToken; s.AdminToken != "" && !isAdminToken(s.AdminToken) {
		problems.Add(
			"ADMIN_TOKEN",
			"is too short or too long, or contains white space or a character that no header can have; expected %d to %d printable ASCII characters, such as those of: openssl rand -hex 32",
			shortestAdminToken,
			longestAdminToken,
		)
	}
	s.AdminHosts = parseHosts(problems, "ADMIN_HOSTS", env.AdminHosts)
}

func isAdminToken(token string) bool {
	return len(token) >= shortestAdminToken && len(token) <= longestAdminToken &&
		!strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
}

var hostName = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// parseHosts reads "notifier.example.org,*.svc.cluster.local".
func parseHosts(problems *Problems, variable, text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	var hosts []string
	for _, part := range strings.Split(text, ",") {
		host := strings.TrimSpace(part)
		if !hostName.MatchString(host) {
			problems.Add(
				variable,
				"%q, expected host names without a port, such as notifier.example.org or *.example.org for all below it, separated by commas",
				host,
			)
			return nil
		}
		hosts = append(hosts, host)
	}
	return hosts
}
