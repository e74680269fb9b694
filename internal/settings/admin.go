package settings

import "strings"

// Bounds of ADMIN_TOKEN, in characters. Clients may try any number of tokens, so a token must be too long to
// guess.
const (
	shortestAdminToken = 16
	longestAdminToken  = 512
)

// parseAdmin parses the address and the token of the admin server.
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
}

func isAdminToken(token string) bool {
	return len(token) >= shortestAdminToken && len(token) <= longestAdminToken &&
		!strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
}
