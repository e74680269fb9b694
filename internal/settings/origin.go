package settings

import (
	"strings"

	"notifier/internal/redact"
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
		return term.Printable(redact.Servers(strings.Split(o.value, ",")))
	case "redis":
		return term.Printable(redact.Redis(o.value))
	case "api":
		return term.Printable(redact.API(o.value))
	default:
		return term.Printable(o.value)
	}
}
