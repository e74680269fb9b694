// Package redact shows addresses, and texts with addresses in them, without users and passwords. An address
// that net/url cannot parse is hidden, because any part of it may be a password.
//
// The package is a leaf: it knows no setting and no connection.
package redact

import (
	"net/url"
	"regexp"
	"strings"
	"unicode"
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
	if err != nil || parsed.Host == "" && parsed.Scheme != "unix" {
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

// hidden replaces an address in a text.
const hidden = "[redacted]"

// encodedUser is the user and password of a URL in another encoding. A password can have any characters, so
// it ends at the last "@".
var encodedUser = regexp.MustCompile(`(?i)((?:\\/|%(?:25)*2f){2})[^\s"']*(@|%(?:25)*40)`)

// Encoded hides the user and the password of each URL in a text whose slashes are percent-encoded, perhaps
// repeatedly, or written "\/" as JSON allows.
func Encoded(text string) string {
	if !strings.ContainsAny(text, `%\`) {
		return text
	}
	return encodedUser.ReplaceAllString(text, "${1}"+hidden+"${2}")
}

// Text removes the user and the password of each URL in a text. Behind "//", if there is no valid host, the
// rest of the word is hidden. Its time is proportional to the text.
func Text(text string) string {
	text = Encoded(text)
	var shown strings.Builder
	for {
		before, after, found := strings.Cut(text, "//")
		shown.WriteString(before)
		if !found {
			return shown.String()
		}
		shown.WriteString("//")
		end := strings.IndexFunc(after, endsAuthority)
		if end < 0 {
			end = len(after)
		}
		text = after[end:]
		if parsed, err := url.Parse("//" + after[:end]); err == nil && isHost(parsed.Host) {
			shown.WriteString(parsed.Host)
			continue
		}
		shown.WriteString(hidden)
		if end = strings.IndexFunc(text, unicode.IsSpace); end < 0 {
			return shown.String()
		}
		text = text[end:]
	}
}

// encodedEnd is the end of a truncated text, from the encoded slashes on.
var encodedEnd = regexp.MustCompile(`(?i)((?:\\/|%(?:25)*2f){2})[^\s"']*$`)

// Beginning is Text for a truncated text, which may end in a password without its @.
func Beginning(text string) string {
	text = encodedEnd.ReplaceAllString(text, "${1}"+hidden)
	at := strings.LastIndex(text, "//")
	if at < 0 || strings.ContainsFunc(text[at+len("//"):], endsAuthority) {
		return Text(text)
	}
	return Text(text[:at]) + "//" + hidden
}

// isHost reports whether host is a name or an address with at most one port. net/url takes "a:b:", too.
func isHost(host string) bool { return strings.HasPrefix(host, "[") || strings.Count(host, ":") <= 1 }

func endsAuthority(r rune) bool { return unicode.IsSpace(r) || r == '/' || r == '?' || r == '#' }
