package settings

import (
	"net/url"
	"strings"

	"notifier/internal/consume"
	"notifier/internal/term"
)

// Values of Origin.Source.
const (
	FromDefault     = "default"
	FromEnvironment = "environment"
	FromFile        = "file" // that X_FILE names
)

// Origin is one setting, and where its value came from.
type Origin struct {
	Name   string
	Source string
	File   string // with FromFile: its path

	value string // in effect; it may be a secret: show it with Shown
	rule  string // how it may be shown; the tag of its field in Environment
}

// Shown is the value as people may see it: without the secrets that it can contain.
func (o Origin) Shown() string {
	if o.value == "" {
		return "(none)"
	}
	switch o.rule {
	case "never":
		return "set"
	case "servers":
		return term.Printable(consume.RedactServers(strings.Split(o.value, ",")))
	case "redis":
		return term.Printable(redactRedis(o.value))
	case "host":
		return term.Printable(redactHost(o.value))
	default:
		return term.Printable(o.value)
	}
}

// redactHost keeps the scheme and the host of a URL. A path can be a secret too: a webhook's is.
func redactHost(raw string) string {
	parsed, err := url.Parse(raw)
	if err != nil || parsed.Host == "" {
		return "?"
	}
	return parsed.Scheme + "://" + parsed.Host
}

// redactRedis keeps what names the servers and the database in a Redis URL. The other parameters can contain passwords.
func redactRedis(raw string) string {
	parsed, err := url.Parse(raw)
	if err != nil || parsed.Host == "" {
		return "?"
	}
	shown := parsed.Scheme + "://" + parsed.Host + parsed.EscapedPath()
	separator := "?"
	for _, name := range []string{"master_name", "addr"} {
		for _, value := range parsed.Query()[name] {
			shown += separator + name + "=" + value[strings.LastIndex(value, "@")+1:] // without a user that was put before it by mistake
			separator = "&"
		}
	}
	return shown
}
