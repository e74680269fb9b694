package redact

import (
	"regexp"
	"strings"
)

// hidden replaces a possible secret in a source.
const hidden = "[redacted]"

// longestHost is the longest name of a host, in bytes.
const longestHost = 253

// Patterns of secrets in a source. Source runs for every event, so each pattern runs only on text with one of
// its marks.
var (
	word       = regexp.MustCompile(`\S+`)
	hookHost   = regexp.MustCompile(`(?i)((?:^|[^a-z0-9.-])hooks\.[a-z0-9.-]+(?::\d+)?|/webhooks?(?:b2)?)/\S+`)
	relQuery   = regexp.MustCompile(`[?#][^\s?#]*=\S*`)
	plainUser  = regexp.MustCompile(`[^\s/@,;]*:[^\s/@]+@`)
	namedValue = regexp.MustCompile(
		`(?i)((?:token|secret|passw(?:or)?d|passwd|pwd|api[_-]?key|access[_-]?key|private[_-]?key|auth|authorization|signature|sig|credentials?|session(?:_?id)?)` +
			`(?:\s*=\s*["']?|["']\s*:\s*["']?|:\s+["']?)(?:bearer\s+|basic\s+)?)[^\s,;"'&]+`,
	)
	knownToken = regexp.MustCompile(
		`xox[a-z](?:\.xox[a-z])?-[\w-]+|xapp-[\w-]+|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|A[KS]IA[0-9A-Z]{16}` +
			`|eyJ[\w-]{8,}\.[\w.-]+|sk_live_\w+|npm_\w{30,}|AIza[\w-]{35}|bot\d{6,}:[\w-]{30,}|\bT[A-Z0-9]{8,}/B[A-Z0-9]{8,}/\w{16,}` +
			`|-----BEGIN .*|(?i:bearer|basic)\s+[\w.~+/=-]{16,}`,
	)

	namedMarks = []string{"=", ": ", `":`, `':`, `" :`}
	tokenMarks = []string{
		"xox",
		"xapp-",
		"gh",
		"glpat-",
		"KIA",
		"SIA",
		"eyJ",
		"sk_live_",
		"npm_",
		"AIza",
		"bot",
		"/B",
		"-----BEGIN",
		"earer",
		"asic",
		"EARER",
		"ASIC",
	}

	// opaque are schemes of names with an @ in them that is not about a user.
	opaque = []string{"mailto:", "urn:", "acct:", "xmpp:", "sip:", "sips:", "did:", "tag:"}
)

// Source removes possible secrets from a publisher's source: the user and the query of a URL, the path of a
// webhook, passwords in front of a host, values called token, password and the like, and tokens of a known
// form. Its time is proportional to the text, so bound the text first. If whole is false, text was truncated,
// and Source also removes the possible beginning of a password.
func Source(text string, whole bool) string {
	if strings.Contains(text, "://") {
		text = word.ReplaceAllStringFunc(text, urlWord)
	}
	if strings.Contains(strings.ToLower(text), "hook") {
		text = hookHost.ReplaceAllString(text, "$1/"+hidden)
	}
	if strings.Contains(text, "=") {
		text = relQuery.ReplaceAllString(text, "")
	}
	if strings.Contains(text, "@") {
		text = plainUser.ReplaceAllStringFunc(text, func(user string) string {
			for _, scheme := range opaque {
				if strings.HasPrefix(strings.ToLower(user), scheme) {
					return user
				}
			}
			return ""
		})
	}
	if containsAny(text, namedMarks) {
		text = namedValue.ReplaceAllString(text, "${1}"+hidden)
	}
	if containsAny(text, tokenMarks) {
		text = knownToken.ReplaceAllString(text, hidden)
	}
	colon := strings.LastIndexByte(text, ':')
	if !whole && colon >= 0 && !strings.ContainsAny(text[colon:], " /") {
		text = text[:colon+1] + hidden
	}
	return text
}

func containsAny(text string, marks []string) bool {
	for _, mark := range marks {
		if strings.Contains(text, mark) {
			return true
		}
	}
	return false
}

// urlWord removes users and queries from the URLs in a word. If a URL has no valid host, everything after the
// scheme is hidden: it may be a password with a slash in it.
func urlWord(text string) string {
	var shown strings.Builder
	for {
		before, after, found := strings.Cut(text, "://")
		shown.WriteString(before)
		if !found {
			break
		}
		shown.WriteString("://")
		end := strings.IndexAny(after, "/?#")
		if end < 0 {
			end = len(after)
		}
		host := after[:end]
		rest := after[end:]
		// In a list of URLs ("nats://a:b@c,nats://d") the host ends where the next one begins.
		list := strings.HasPrefix(rest, "//") && strings.HasSuffix(host, ":")
		host = withoutUsers(host)
		if !list && !validHost(host) {
			shown.WriteString(hidden)
			return shown.String()
		}
		shown.WriteString(host)
		text = rest
		if list {
			text = "://" + strings.TrimPrefix(rest, "//")
			trimmed := strings.TrimSuffix(shown.String(), ":")
			shown.Reset()
			shown.WriteString(trimmed)
		}
	}
	return withoutQuery(shown.String())
}

// withoutUsers is the end of an authority, after the user.
func withoutUsers(authority string) string {
	return authority[strings.LastIndexByte(authority, '@')+1:]
}

// validHost reports whether this can be a host and a port.
func validHost(host string) bool {
	name, port := host, ""
	if colon := strings.LastIndexByte(host, ':'); colon > strings.LastIndexByte(host, ']') {
		name, port = host[:colon], host[colon+1:]
	}
	return len(name) <= longestHost && strings.Trim(port, "0123456789") == "" &&
		(strings.HasPrefix(name, "[") || !strings.Contains(name, ":"))
}

// withoutQuery cuts a URL before its query, and before a fragment that looks like one.
func withoutQuery(url string) string {
	if query := strings.IndexByte(url, '?'); query >= 0 {
		url = url[:query]
	}
	if fragment := strings.IndexByte(url, '#'); fragment >= 0 && strings.Contains(url[fragment:], "=") {
		url = url[:fragment]
	}
	return url
}
