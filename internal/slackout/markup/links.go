package markup

import (
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of links.
const (
	maxURL       = 3_000 // bytes that Slack takes
	maxShownHost = 28    // characters; Slack may cut the words of a button after about 30
	maxAddress   = 64    // characters of a mail address, which is shown whole
	// characters in running text, with the host behind them: more could push it below "See more"
	maxLinkWords = 150
)

// hostShape is a host name or an IPv4 address in lower case. Names in other scripts are written in Punycode
// (xn--...).
var hostShape = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*$`)

// maxHost is the length in bytes of the longest host name (RFC 1035).
const maxHost = 253

// Hosts are the hosts whose links may have words of the publisher's choice: each is a host name in lower
// case, or "*." and a host name, which matches all names that end in it and not the name itself.
type Hosts []string

// ParseHosts reads a comma separated list of hosts. Empty is none. The error names the first that is invalid
// and what was expected.
func ParseHosts(text string) (Hosts, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var hosts Hosts
	for part := range strings.SplitSeq(text, ",") {
		host := strings.ToLower(strings.TrimSpace(part))
		name, wildcard := strings.CutPrefix(host, "*.")
		switch {
		case len(name) > maxHost || !hostShape.MatchString(name):
			return nil, fmt.Errorf(
				"%q, expected host names such as grafana.example.org or *.example.org, without scheme, port or path",
				part,
			)
		case wildcard && !strings.Contains(name, "."):
			return nil, fmt.Errorf("%q matches a whole top-level domain, expected one such as *.example.org", part)
		}
		hosts = append(hosts, host)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts), nil
}

// match reports whether links to a host, in lower case, may have words.
func (h Hosts) match(host string) bool {
	for _, listed := range h {
		domain, wildcard := strings.CutPrefix(listed, "*")
		if listed == host || wildcard && strings.HasSuffix(host, domain) {
			return true
		}
	}
	return false
}

// link is a URL that every browser reads in the same way, and where it goes.
type link struct {
	url   string
	shown string // where it goes, as people see it: the host with the port if there is one, or the mail address
	host  string // the whole host in lower case, without the port; empty for a mailto link
}

// parseLink accepts http, https and mailto. A URL that could show one host and open another is rejected: one
// with a user part, a backslash, white space, a port with zeros in front, or a host that is not plain ASCII.
// The error quotes nothing but a short scheme.
func parseLink(raw string) (link, error) {
	switch {
	case len(raw) > maxURL:
		return link{}, fmt.Errorf("has %d bytes, expected at most %d", len(raw), maxURL)
	case strings.ContainsFunc(raw, notOfURL):
		return link{}, errors.New(
			"has white space, a control character, <, >, a quote or a backslash, expected none",
		)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return link{}, errors.New("is not a URL, expected one such as https://example.org/path")
	}
	switch u.Scheme {
	case "http", "https":
		return parseWebLink(raw, u)
	case "mailto":
		return parseMailLink(raw, u)
	}
	return link{}, fmt.Errorf("has the scheme %.20q, expected http, https or mailto", u.Scheme)
}

// notOfURL reports whether a character is one that parsers of URLs remove, rewrite or end at, each in its own
// way.
func notOfURL(r rune) bool {
	return !unicode.IsPrint(r) || r == utf8.RuneError || strings.ContainsRune(` <>"\`+"`", r)
}

func parseWebLink(raw string, u *url.URL) (link, error) {
	if u.User != nil {
		return link{}, errors.New("has a user before its host, expected none")
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if len(host) > maxHost || !hostShape.MatchString(host) {
		return link{}, errors.New(
			"has no plain host, expected a name such as example.org, in another script one that begins with xn--",
		)
	}
	l := link{url: raw, shown: endOf(host), host: host}
	if port := u.Port(); port != "" {
		_, err := strconv.ParseUint(port, 10, 16)
		if err != nil || port[0] == '0' { // browsers skip zeros, however many
			return link{}, errors.New("has no plain port, expected a number from 1 to 65535 without zeros in front")
		}
		l.shown += ":" + port
	}
	return l, nil
}

// endOf is a host as it is shown. Of a long one the end is kept: it names the domain.
func endOf(host string) string {
	if len(host) <= maxShownHost {
		return host
	}
	return "…" + host[len(host)-maxShownHost+1:]
}

// parseMailLink accepts one address and no header fields: those could add further addresses or a text, and so
// could what mail programs decode (%2C is a comma).
func parseMailLink(raw string, u *url.URL) (link, error) {
	address, err := mail.ParseAddress(u.Opaque)
	_, host, _ := strings.Cut(u.Opaque, "@")
	switch {
	case err != nil, address.Address != u.Opaque, u.RawQuery != "", u.Fragment != "",
		strings.Contains(u.Opaque, "%"), strings.ContainsFunc(u.Opaque, notASCII), !hostShape.MatchString(strings.ToLower(host)):
		return link{}, errors.New(
			"is not a mail link, expected mailto: and one plain address such as ops@example.org",
		)
	case len(u.Opaque) > maxAddress:
		return link{}, fmt.Errorf(
			"has a mail address of %d characters, expected at most %d",
			len(u.Opaque),
			maxAddress,
		)
	}
	return link{url: raw, shown: u.Opaque}, nil
}

func notASCII(r rune) bool { return r >= utf8.RuneSelf }

// label is the words of something to click on, with where it goes in front: Slack cuts off the end of a label
// that is long. At most limit characters.
func (l link) label(words string, limit int) string {
	words, prefix := oneLine(words), l.shown+": "
	switch {
	case words == "" || words == l.shown:
		return l.shown
	case strings.HasPrefix(words, prefix): // neutralised before, or the publisher shows it
		return cutLabel(words, limit)
	}
	return cutLabel(prefix+words, limit)
}

// inline is the words of a link in running text, with where it goes behind. At most limit characters.
func (l link) inline(words string, limit int) string {
	words, suffix := oneLine(words), " ("+l.shown+")"
	if words == "" || words == l.shown {
		return l.shown
	}
	words = strings.TrimSuffix(words, suffix) // neutralised before
	return cutLabel(words, limit-utf8.RuneCountInString(suffix)) + suffix
}

// oneLine has one space in the place of everything between words that is shown as nothing, however long it
// is.
func oneLine(words string) string { return strings.Join(strings.FieldsFunc(words, isBlank), " ") }

// isBlank reports whether a character is white space, or one that takes room and is shown as blank: the
// Hangul fillers and the Braille pattern without dots.
func isBlank(r rune) bool {
	return unicode.IsSpace(r) || strings.ContainsRune("\u115f\u1160\u2800\u3164\uffa0", r)
}

// cutLabel cuts a text at limit characters, at least 1, and ends it with an ellipsis then.
func cutLabel(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	return string([]rune(text)[:limit-1]) + "…"
}
