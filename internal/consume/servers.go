package consume

import (
	"net/url"
	"strings"
)

// RedactServers lists NATS servers for people: with a scheme, and without the users, passwords and tokens that a URL
// can hold. What is no URL becomes a question mark, because a secret may be in it.
func RedactServers(servers []string) string {
	redacted := make([]string, len(servers))
	for i, server := range servers {
		server = strings.TrimSpace(server)
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		redacted[i] = "?"
		if parsed, err := url.Parse(server); err == nil && parsed.Host != "" {
			redacted[i] = parsed.Scheme + "://" + parsed.Host
		}
	}
	return strings.Join(redacted, ", ")
}
