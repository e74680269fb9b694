// Package redact shows addresses without the secrets that a URL can hold: users, passwords, tokens, secret
// paths. An unparsable address becomes a question mark, because any part of it may be a secret.
//
// The package is a leaf: it knows no setting and no connection.
package redact

import (
	"net/url"
	"strings"
)

const unknown = "?"

// Servers lists NATS servers, each with its host and scheme, "nats://" by default.
func Servers(servers []string) string {
	shown := make([]string, len(servers))
	for i, server := range servers {
		server = strings.TrimSpace(server)
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		shown[i] = Host(server)
	}
	return strings.Join(shown, ", ")
}

// Host keeps the scheme and the host of a URL. A path can be a secret too: a webhook's is.
func Host(raw string) string {
	parsed, err := url.Parse(raw)
	if err != nil || parsed.Host == "" {
		return unknown
	}
	return parsed.Scheme + "://" + parsed.Host
}

// API is Host with the path, so that one which is wrong is seen: of lower-case words alone, such as /api/. A
// part of it that could be a secret is shown as "...".
func API(raw string) string {
	shown := Host(raw)
	parsed, err := url.Parse(raw)
	if shown == unknown || err != nil {
		return shown
	}
	parts := strings.Split(parsed.EscapedPath(), "/")
	for i, part := range parts {
		if len(part) > longestWord || strings.ContainsFunc(part, func(r rune) bool { return r < 'a' || r > 'z' }) {
			parts[i] = "..."
		}
	}
	return shown + strings.Join(parts, "/")
}

// longestWord bounds the words of a path that are shown. A longer one may be a secret.
const longestWord = 12

// Redis keeps the servers and the database of a Redis URL. The other parameters can hold passwords.
func Redis(raw string) string {
	parsed, err := url.Parse(raw)
	if err != nil || parsed.Host == "" {
		return unknown
	}
	shown := parsed.Scheme + "://" + parsed.Host + parsed.EscapedPath()
	separator := "?"
	for _, name := range []string{"master_name", "addr"} {
		for _, value := range parsed.Query()[name] {
			// without a user that was put before it by mistake
			shown += separator + name + "=" + value[strings.LastIndex(value, "@")+1:]
			separator = "&"
		}
	}
	return shown
}
