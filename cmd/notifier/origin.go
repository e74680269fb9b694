package main

import (
	"net/url"
	"strings"

	"notifier/internal/consume"
)

// Where a setting's value can come from.
const (
	fromDefault     = "default"
	fromEnvironment = "environment"
	fromFile        = "file" // that X_FILE names
)

// origin is one setting: its value, and where that came from.
type origin struct {
	name   string
	value  string // as it counts; it may be a secret: show it with shown
	source string
	file   string // with fromFile: its path
	rule   string // how it may be shown; the tag of its field in environment
}

// shown is the value as people may see it: without the secrets that can be in it.
func (o origin) shown() string {
	if o.value == "" {
		return "(none)"
	}
	switch o.rule {
	case "never":
		return "set"
	case "servers":
		return plain(consume.RedactServers(strings.Split(o.value, ",")))
	case "redis":
		return plain(redactRedis(o.value))
	case "host":
		return plain(redactHost(o.value))
	default:
		return plain(o.value)
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

// redactRedis keeps of a Redis URL what names the servers, and the database. The other parameters can hold passwords.
func redactRedis(raw string) string {
	parsed, err := url.Parse(raw)
	if err != nil || parsed.Host == "" {
		return "?"
	}
	shown := parsed.Scheme + "://" + parsed.Host + parsed.EscapedPath()
	separator := "?"
	for _, name := range []string{"master_name", "addr"} {
		for _, value := range parsed.Query()[name] {
			shown += separator + name + "=" + value[strings.LastIndex(value, "@")+1:] // a user can be put before it by mistake
			separator = "&"
		}
	}
	return shown
}
