package settings

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"notifier/internal/event"
	"notifier/internal/term"
)

func parseDuration(problems *Problems, variable, text string, least, most time.Duration) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		problems.Add(variable, "%q, expected a duration from %s to %s in h, m, s or ms",
			text, term.ShortDuration(least), term.ShortDuration(most))
	}
	return d
}

func parseNumber[N int | int64](problems *Problems, variable, text string, least, most N) N {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < int64(least) || n > int64(most) {
		problems.Add(variable, "%q, expected a whole number from %d to %d", text, least, most)
	}
	return N(n)
}

// checkServers checks the list of NATS servers. It shows none of them, because each can contain a password.
func checkServers(problems *Problems, list string) {
	servers := strings.Split(list, ",")
	webSockets := 0
	for i, server := range servers {
		parsed, err := parseServer(server)
		port := ""
		if err == nil {
			port = parsed.Port()
		}
		if err != nil || parsed.Host == "" || strings.Contains(parsed.Host, ";") ||
			!slices.Contains([]string{"nats", "tls", "ws", "wss"}, parsed.Scheme) ||
			port != "" && (!isPort(port) || port == "0") {
			problems.Add(
				"NATS_URL",
				"server %d of %d is not a NATS URL, expected nats://[user:password@]host:port or tls://host:port, several separated by commas",
				i+1,
				len(servers),
			)
			return
		}
		if parsed.Scheme == "ws" || parsed.Scheme == "wss" {
			webSockets++
		}
	}
	if webSockets != 0 && webSockets != len(servers) {
		problems.Add("NATS_URL", "mixes ws:// or wss:// with other servers, expected one kind")
	}
}

// checkRedisURL rejects URLs that go-redis parses but that lead to no server.
func checkRedisURL(problems *Problems, raw string) {
	parsed, err := url.Parse(raw)
	if err != nil {
		return // go-redis has found nothing wrong with it
	}
	parameters := parsed.Query()
	database := strings.Trim(parsed.Path, "/")
	switch {
	case strings.ContainsAny(parsed.Host, ",;"):
		problems.Add("REDIS_URL", "has several servers before its first parameter, expected one")
	case parameters.Has("addr") && !parameters.Has("master_name") && database != "" && database != "0":
		problems.Add(
			"REDIS_URL",
			"names a database and, with addr=, a Cluster, which has database 0 alone; expected no database",
		)
	}
}

// parseServer reads one server of NATS_URL; without a scheme it is nats://.
func parseServer(server string) (*url.URL, error) {
	server = strings.TrimSpace(server)
	if !strings.Contains(server, "://") {
		server = "nats://" + server
	}
	return url.Parse(server)
}

// checkName checks a name of a stream or consumer as the NATS server does.
func checkName(problems *Problems, variable, name string) {
	if !isName(name) {
		problems.Add(
			variable,
			`%q, expected a name without white space and . * > / \, of at most %d bytes`,
			name,
			longestSubjectPart,
		)
	}
}

func isName(name string) bool {
	return name != "" && len(name) <= longestSubjectPart && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`.*>/\`, r)
	})
}

func isPlainSubject(subject string) bool {
	if subject == "" || len(subject) > longestSubjectPart || subject[0] == '$' {
		return false
	}
	for _, token := range strings.Split(subject, ".") {
		if token == "" ||
			strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' || r == '*' || r == '>' }) {
			return false
		}
	}
	return true
}

// checkAddr checks the address of the admin server.
func checkAddr(problems *Problems, variable, addr string) {
	if _, port, err := net.SplitHostPort(addr); err != nil || !isPort(port) {
		problems.Add(
			variable,
			"%q, expected host:port such as 127.0.0.1:8080, or nothing for no admin server",
			addr,
		)
	}
}

func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

// largestSettingFile bounds reading a file: a secret, a list or certificates, not a disk image.
const largestSettingFile = 1 << 20

// secret matches Slack tokens, webhooks, URLs and keys. opaque matches any other secret: a seed, an admin
// token, a JWT.
var (
	secret = regexp.MustCompile(`(?i)://|hooks\.slack\.com|\bxox[abcdeprs][-.]|\bxapp-|-----BEGIN`)
	opaque = regexp.MustCompile(`(?i)^[0-9a-z+=_-]{32,}$|^ey[0-9a-z_-]+\.`)
)

// errSecretPath is for a secret where the path of its file is expected: no error shows it.
var errSecretPath = errors.New("looks like a secret or a URL itself, and not like a path")

// readFile reads a file that a setting names. Its errors name the path, never the content.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil && (secret.MatchString(path) || opaque.MatchString(path)) {
		return nil, errSecretPath
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > largestSettingFile {
		return nil, fmt.Errorf("%s is not a regular file of at most %d bytes", path, largestSettingFile)
	}
	return os.ReadFile(path)
}

// checkOutput checks a subject to which the worker publishes: the worker must not receive its own messages as
// events.
func checkOutput(problems *Problems, variable, subject, example string, read event.Pattern) {
	if !isPlainSubject(subject) {
		problems.Add(
			variable,
			"%q, expected a subject without wildcards and white space, of at most %d bytes, such as %s",
			subject,
			longestSubjectPart,
			example,
		)
	} else if event.Overlap(subject+".>", read.String()) {
		problems.Add(
			variable,
			"%q would be read again through NATS_SUBJECT %q; expected a subject outside it",
			subject,
			read,
		)
	}
}
