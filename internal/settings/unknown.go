package settings

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"notifier/internal/term"
	"notifier/internal/term/suggest"
)

// UnknownVariable is an environment variable that resembles a setting but has no effect.
type UnknownVariable struct {
	Name    string // printable, of at most 128 bytes
	Nearest string // the most similar setting, or ""
}

func (u UnknownVariable) String() string {
	if u.Nearest == "" {
		return u.Name + ": is not a setting of notifier, and has no effect"
	}
	return fmt.Sprintf("%s: is not a setting of notifier, and has no effect; %s is one", u.Name, u.Nearest)
}

const (
	mostUnknown    = 20  // bounds the list: most are variables of other programs
	longestUnknown = 128 // bytes of a name; no setting is as long
	// characters in which a long name with a prefix of ours may differ from the one that was meant
	ownNameDistance = 3
)

// ownPrefixes belong to notifier alone, so an unknown name with one of them is a mistake.
var ownPrefixes = []string{"LIMIT_", "DEDUPE_", "DEAD_LETTER_", "DIGEST_", "DROPPED_"}

// sharedPrefixes are of settings and of many other variables. With them a name counts that differs little
// from a setting's.
var sharedPrefixes = []string{
	"NATS_",
	"REDIS_",
	"SLACK_",
	"EVENT_",
	"SEND_",
	"BATCH_",
	"ADMIN_",
	"SHUTDOWN_",
	"LOG_",
}

// meant maps the names that other programs use for a setting, and settings with their words swapped.
var meant = map[string]string{
	"SLACK_TOKEN":                "SLACK_BOT_TOKEN",
	"SLACK_API_TOKEN":            "SLACK_BOT_TOKEN",
	"SLACK_OAUTH_TOKEN":          "SLACK_BOT_TOKEN",
	"SLACK_ACCESS_TOKEN":         "SLACK_BOT_TOKEN",
	"SLACK_WEBHOOK":              "SLACK_WEBHOOK_URL",
	"SLACK_URL":                  "SLACK_WEBHOOK_URL",
	"SLACK_HOOK_URL":             "SLACK_WEBHOOK_URL",
	"SLACK_INCOMING_WEBHOOK_URL": "SLACK_WEBHOOK_URL",
	"SLACK_DEFAULT_CHANNEL":      "SLACK_CHANNEL",
	"LIMIT_TOTAL":                "LIMIT_GLOBAL",
	"LIMIT_PER_CATEGORY":         "LIMIT_CATEGORY",
	"LIMIT_PER_GROUP":            "LIMIT_GROUP",
	"GLOBAL_LIMIT":               "LIMIT_GLOBAL",
	"CATEGORY_LIMIT":             "LIMIT_CATEGORY",
	"GROUP_LIMIT":                "LIMIT_GROUP",
	"NATS_QUEUE":                 "NATS_CONSUMER",
	"NATS_DURABLE":               "NATS_CONSUMER",
	"REDIS_PREFIX":               "REDIS_NAMESPACE",
	"REDIS_KEY_PREFIX":           "REDIS_NAMESPACE",
	"EVENT_MAX_SIZE":             "EVENT_MAX_BYTES",
	"ADMIN_PORT":                 "ADMIN_ADDR",
	"ADMIN_LISTEN":               "ADMIN_ADDR",
	"LOGLEVEL":                   "LOG_LEVEL",
}

// conventional are names that other programs read, such as the command nats. They count only where the
// setting is not set, as else they are there for those.
var conventional = map[string]string{
	"REDIS_HOST":              "REDIS_URL",
	"REDIS_URI":               "REDIS_URL",
	"REDIS_ADDR":              "REDIS_URL",
	"REDIS_ADDRESS":           "REDIS_URL",
	"REDIS_DSN":               "REDIS_URL",
	"REDIS_CONNECTION_STRING": "REDIS_URL",
	"NATS_HOST":               "NATS_URL",
	"NATS_URI":                "NATS_URL",
	"NATS_ADDR":               "NATS_URL",
	"NATS_SERVER":             "NATS_URL",
	"NATS_SERVERS":            "NATS_URL",
	"NATS_CREDS":              "NATS_CREDS_FILE",
	"NATS_NKEY":               "NATS_NKEY_FILE",
	"NATS_CA":                 "NATS_TLS_CA",
	"NATS_CERT":               "NATS_TLS_CERT",
	"NATS_KEY":                "NATS_TLS_KEY",
}

// foreign matches names near a setting that belong to Slack apps, to docker-compose.yml, to images, and to
// orchestrators, which derive variables from the names of services.
var foreign = regexp.MustCompile(
	`^(SLACK_(APP|USER)_TOKEN|SLACK_(SIGNING|CLIENT)_SECRET|SLACK_(CLIENT|APP|TEAM|USER)_ID|` +
		`NATS_(PORT|USER|PASSWORD|CONTEXT|TIMEOUT)|REDIS_(PORT|DB|USER|USERNAME|PASSWORD)|` +
		`[A-Z0-9_]+_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|[A-Z0-9_]+_PORT(_[0-9]+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?|[A-Z0-9_]+_ENV_[A-Z0-9_]+)$`,
)

// unknownVariables returns the names that resemble a setting, sorted and without their values. set holds the
// settings that have a value.
func unknownVariables(names []string, set map[string]bool) []UnknownVariable {
	var known []string
	for _, variable := range Variables() {
		known = append(known, variable.Name, variable.Name+"_FILE")
	}
	var unknown []UnknownVariable
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if len(name) > longestUnknown || slices.Contains(known, name) || name == "ADMIN_PORT" && set["ADMIN_ADDR"] {
			continue
		}
		if nearest, looks := looksLike(name, known, set); looks {
			unknown = append(unknown, UnknownVariable{Name: term.Printable(name), Nearest: nearest})
		}
		if len(unknown) == mostUnknown {
			break
		}
	}
	return unknown
}

// looksLike reports whether a name that is not a setting looks like one, and like which.
func looksLike(name string, known []string, set map[string]bool) (nearest string, looks bool) {
	upper := strings.TrimPrefix(strings.ToUpper(name), "NOTIFIER_")
	base, ofFile := strings.CutSuffix(upper, "_FILE")
	suffix := ""
	if ofFile {
		suffix = "_FILE"
	}
	if nearest, found := meant[base]; found {
		return nearest + suffix, true
	}
	if nearest, found := conventional[base]; found {
		return nearest, !set[nearest]
	}
	own := hasPrefix(upper, ownPrefixes)
	if !own && foreign.MatchString(base) {
		return "", false
	}
	distance := 1
	switch {
	case own || hasPrefix(upper, sharedPrefixes) && len(upper) >= 12:
		distance = ownNameDistance
	case hasPrefix(upper, sharedPrefixes) || len(upper) >= 12:
		distance = 2
	}
	nearest, found := suggest.Within(upper, known, distance)
	return nearest, found || own
}

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(
		prefixes,
		func(prefix string) bool { return strings.HasPrefix(name, prefix) && name != prefix },
	)
}
