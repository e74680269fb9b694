package settings

import (
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"notifier/internal/suggest"
)

// hints are what is most likely the matter with the value of a variable that has a problem. A hint follows the problem on its line.
// Those of variables that may hold a secret are fixed sentences, with nothing of the value.
var hints = map[string]func(value string) string{
	"LIMIT_GLOBAL": hintLimit, "LIMIT_CATEGORY": hintLimit, "LIMIT_GROUP": hintGroupLimit, "SLACK_PACE": hintLimit,
	"LIMIT_OVERRIDES": hintLimits, "LIMIT_GROUP_OVERRIDES": hintLimits, "LIMIT_RESERVE": hintReserve, "SLACK_ROUTES": hintList,
	"DEDUPE_WINDOW": hintDuration, "EVENT_MAX_AGE": hintOptionalDuration, "SLACK_TIMEOUT": hintDuration, "DIGEST_INTERVAL": hintOptionalDuration, "SHUTDOWN_TIMEOUT": hintDuration,
	"EVENT_MAX_BYTES": hintNumber, "SEND_CONCURRENCY": hintNumber, "BATCH_SIZE": hintNumber, "DEAD_LETTER_MAX_BYTES": hintNumber, "NATS_REPLICAS": hintNumber,
	"LOG_LEVEL":    hintWord("debug", "info", "warn", "error"),
	"LOG_FORMAT":   hintWord("json", "console"),
	"SLACK_MARKUP": hintWord("escape", "allow"),
	"NATS_URL":     hintNATS, "REDIS_URL": hintRedis, "NATS_SUBJECT": hintSubject, "ADMIN_ADDR": hintAddr,
	"SLACK_BOT_TOKEN": hintToken, "SLACK_WEBHOOK_URL": hintWebhook, "SLACK_API_URL": hintAPI,
}

// hint is what is most likely the matter with a value; empty: nobody knows.
func hint(variable, value string) string {
	if value == "" {
		return ""
	}
	if r := lookalike(value); r != 0 {
		if hidden(variable) {
			return "it has a character that only looks like one of ASCII: type it again"
		}
		return fmt.Sprintf("%q only looks like a character of ASCII: type it again", r)
	}
	if about, found := hints[variable]; found {
		if text := about(value); text != "" {
			return text
		}
	}
	if strings.TrimSpace(value) != value {
		return "there is white space around it: remove that"
	}
	return ""
}

// hidden reports whether the value of a variable must not be shown as it is.
func hidden(variable string) bool {
	field, found := reflect.TypeFor[Environment]().FieldByNameFunc(func(name string) bool {
		field, _ := reflect.TypeFor[Environment]().FieldByName(name)
		return field.Tag.Get("envconfig") == variable
	})
	return !found || field.Tag.Get("shown") != ""
}

// lookalike is the first character that input methods, word processors and web pages put in place of one of ASCII; 0: none.
func lookalike(value string) rune {
	for _, r := range value {
		if r >= 0xFF01 && r <= 0xFF5E || strings.ContainsRune("\u00a0\u2007\u202f\u3000\u200b\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb\u2010\u2011\u2012\u2013\u2014\u2044\u2215\u2217", r) {
			return r
		}
	}
	return 0
}

var (
	noUnit    = regexp.MustCompile(`(?:^|/\s*)(\d+)(?:[:+,]|$)`)
	otherUnit = regexp.MustCompile(`\d\s*((?i:mins?|minutes?|secs?|seconds?|hrs?|hours?|d|days?|w|weeks?)|M|H|S)\b`)
	grouped   = regexp.MustCompile(`^\d{1,3}([,_' ]\d{3})+(/|$)`)
	withUnit  = regexp.MustCompile(`(?i)^[\d.]+\s*([kmgt]i?b?|b|bytes?|e\d+)(/|$)`)
	inWords   = regexp.MustCompile(`(?i)^\s*\d+\s*(per|in|every|a|each|x|-|:|\\|\|)\s*\d*\s*[a-z]+\s*$`)
	isTier    = regexp.MustCompile(`^\s*\d+/\d+[a-z]+(:[0-9a-z]+)?\s*$`)
	isSwapped = regexp.MustCompile(`^(?:\s*(?:\d+(?:h|m|s|ms))+\s*/\s*\d+\s*(?:\+|$))+$`)
	swapped   = regexp.MustCompile(`\s*([\da-z]+)\s*/\s*(\d+)\s*`)
	isZero    = regexp.MustCompile(`(^|[=+,])\s*0+/`)
	isSwitch  = regexp.MustCompile(`(?i)^(true|false|yes|no|on|off|enabled?|disabled?|none|never|null|unlimited|infinite|inf)$`)
)

// hintLimit is about COUNT/DURATION.
func hintLimit(value string) string {
	trimmed := strings.TrimSpace(value)
	switch {
	case isSwitch.MatchString(trimmed):
		return "a limit cannot be switched off; one that practically never refuses is 1000000/1m:1m"
	case isSwapped.MatchString(value):
		return "COUNT and DURATION are swapped; write " + swapped.ReplaceAllString(value, "$2/$1")
	case strings.Contains(value, "%"):
		return "a share in percent is not possible: COUNT is a number of messages"
	case grouped.MatchString(trimmed), withUnit.MatchString(trimmed) && strings.Contains(value, "/"):
		return "COUNT is written in digits alone, such as 1000"
	case strings.ContainsAny(value, ",;&"):
		return "tiers are joined with +, such as 10/30m+1/5s"
	case isZero.MatchString(value):
		return "0 would send nothing at all; notifier mute silences a category for a while"
	case inWords.MatchString(trimmed):
		return "COUNT and DURATION have a / between them, such as 10/30m"
	}
	if text := hintDuration(value); text != "" && strings.Contains(value, "/") {
		return text
	}
	if strings.ContainsAny(trimmed, " \t") {
		return "it has white space inside: write it without, such as 10/30m"
	}
	return ""
}

func hintGroupLimit(value string) string {
	if isSwitch.MatchString(strings.TrimSpace(value)) {
		return "where groups have no limit, leave it out"
	}
	return hintLimit(value)
}

// hintLimits is about CATEGORY=LIMIT,CATEGORY=LIMIT.
func hintLimits(value string) string {
	if text := hintList(value); text != "" {
		return text
	}
	for _, entry := range strings.Split(value, ",") {
		name, limit, found := strings.Cut(entry, "=")
		if !found && isTier.MatchString(entry) {
			return "tiers of one limit are joined with +, such as errors=20/30m+2/10s"
		}
		if !found {
			limit = name
		}
		if text := hintLimit(limit); text != "" && (found || strings.Contains(limit, "/")) {
			return text
		}
	}
	return ""
}

func hintReserve(value string) string {
	if text := hintList(value); text != "" {
		return text
	}
	if strings.ContainsAny(value, "/%") {
		return "it is a number of slots of LIMIT_GLOBAL, such as payments=5"
	}
	return ""
}

// hintList is about NAME=VALUE,NAME=VALUE.
func hintList(value string) string {
	switch trimmed := strings.TrimSpace(value); {
	case strings.Contains(value, ";"):
		return "entries are separated by commas, not by semicolons"
	case strings.HasPrefix(trimmed, "{"), strings.HasPrefix(trimmed, "["):
		return "it is not JSON: entries are NAME=VALUE, separated by commas"
	case strings.HasSuffix(trimmed, ","):
		return "there is a comma too many at its end"
	case !strings.Contains(value, "=") && strings.Contains(value, ":"):
		return "name and value have a = between them, not a colon"
	}
	return ""
}

func hintOptionalDuration(value string) string {
	if isSwitch.MatchString(strings.TrimSpace(value)) {
		return "it is not a switch; 0 is never"
	}
	return hintDuration(value)
}

func hintDuration(value string) string {
	trimmed := strings.TrimSpace(value)
	if unit := otherUnit.FindString(trimmed); unit != "" {
		return "units are h, m, s and ms: a day is 24h, five minutes are 5m"
	}
	if found := noUnit.FindStringSubmatch(trimmed); found != nil && found[1] != "0" {
		n := found[1]
		return fmt.Sprintf("%s has no unit: %ss are seconds, %sm minutes, %sh hours", n, n, n, n)
	}
	if isSwitch.MatchString(trimmed) {
		return "it is not a switch"
	}
	return ""
}

func hintNumber(value string) string {
	trimmed := strings.TrimSpace(value)
	switch {
	case isSwitch.MatchString(trimmed):
		return "it is not a switch"
	case withUnit.MatchString(trimmed):
		return "it is written in digits alone, without a unit: 65536 for 64 KiB"
	case grouped.MatchString(trimmed), strings.Contains(trimmed, "."):
		return "it is written in digits alone"
	}
	return ""
}

// hintWord is about a variable that takes one of a few words.
func hintWord(words ...string) func(string) string {
	meant := map[string]string{
		"warning": "warn", "err": "error", "fatal": "error", "critical": "error", "trace": "debug", "verbose": "debug", "information": "info", "notice": "info",
		"text": "console", "plain": "console", "pretty": "console", "logfmt": "console",
	}
	return func(value string) string {
		lower := strings.ToLower(strings.TrimSpace(value))
		if word := meant[lower]; slices.Contains(words, word) {
			return "that is " + word + " here"
		}
		if word, found := suggest.Nearest(lower, words); found {
			return "that is " + word + ", in small letters"
		}
		if isSwitch.MatchString(lower) {
			return "it is not a switch"
		}
		return ""
	}
}

func hintSubject(value string) string {
	switch tokens := strings.Split(value, "."); {
	case strings.ContainsAny(value, " ,;"):
		return "it is one subject; a common first token such as notify.> has all others below it"
	case strings.Contains(value, "/"):
		return "tokens are separated by dots"
	case slices.ContainsFunc(tokens, func(token string) bool { return len(token) > 1 && strings.ContainsAny(token, "*>") }):
		return "a wildcard is a token by itself, such as in notify.> or notify.*"
	case !strings.ContainsAny(value, "*>"):
		return "with categories below it that is " + strings.TrimSuffix(value, ".") + ".>"
	case slices.Contains(tokens[:len(tokens)-1], ">"):
		return "* is for one token in the middle"
	}
	return ""
}

func hintAddr(value string) string {
	trimmed := strings.TrimSpace(value)
	switch {
	case isNumber(trimmed):
		return "a port alone is written 127.0.0.1:" + trimmed + ", or 0.0.0.0:" + trimmed + " for all addresses"
	case strings.Contains(value, "://"):
		return "write it without scheme and path"
	case isSwitch.MatchString(trimmed):
		return "set it to nothing: ADMIN_ADDR="
	case !strings.Contains(value, ":"):
		return "the port is missing"
	}
	return ""
}

func isNumber(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r < '0' || r > '9' })
}

// unescaped is about a password that ends its URL too early.
const unescaped = "in a password # / ? @ and % are written %23 %2F %3F %40 and %25"

// hintNATS is about a list that may hold passwords.
func hintNATS(value string) string {
	switch {
	case strings.HasPrefix(value, "redis"):
		return "it begins like a URL of Redis"
	case strings.Contains(value, "http://"), strings.Contains(value, "https://"):
		return "NATS does not speak HTTP: it is nats:// or tls://, and the port is mostly 4222"
	case strings.ContainsAny(strings.TrimSpace(value), "; \t"):
		return "several servers are separated by commas"
	case strings.Contains(value, "@") && badUser(value):
		return unescaped
	case strings.HasSuffix(value, ","):
		return "there is a comma too many at its end"
	}
	return ""
}

// hintRedis is about a URL that may hold a password.
func hintRedis(value string) string {
	switch {
	case strings.HasPrefix(value, "nats://"), strings.HasPrefix(value, "tls://"):
		return "it begins like a URL of NATS"
	case !strings.Contains(value, "://") && strings.Contains(value, "redis-cli"):
		return "it is a URL, not a command"
	case !strings.Contains(value, "://"):
		return "its scheme is missing: redis:// before it"
	case strings.HasPrefix(value, "http"):
		return "Redis does not speak HTTP: it is redis:// or rediss://, and the port is mostly 6379"
	case strings.HasPrefix(value, "unix://"):
		return "sockets are not supported"
	case strings.Contains(value, ","):
		return "further servers are parameters: redis://one:6379?addr=two:6379"
	case strings.Contains(value, "@") && badUser(value):
		return unescaped
	}
	return ""
}

// badUser reports whether what is before the last @ of a URL cannot be a user and a password.
func badUser(value string) bool {
	_, rest, _ := strings.Cut(value, "://")
	user := rest[:max(strings.LastIndex(rest, "@"), 0)]
	if _, err := url.PathUnescape(user); err != nil {
		return true
	}
	return strings.ContainsAny(user, "#/?@[]")
}

func hintToken(value string) string {
	kind, found := tokenKind(value)
	if !found {
		return ""
	}
	return "it is " + kind
}

// kindsOfTokens are by how they begin. With none of them the worker could post. (A person's token, xoxp-, can.)
var kindsOfTokens = []struct{ prefix, kind string }{
	{"http://", "a URL: a webhook belongs into SLACK_WEBHOOK_URL"}, {"https://", "a URL: a webhook belongs into SLACK_WEBHOOK_URL"},
	{"hooks.slack.com", "a webhook, which belongs into SLACK_WEBHOOK_URL with https:// before it"},
	{"xapp-", "an app-level token (xapp-): take the bot token from the app's page OAuth & Permissions"},
	{"xoxe", "a refresh or configuration token (xoxe-): take the bot token from the app's page OAuth & Permissions"},
	{"xoxc-", "a browser's token: take the bot token from the app's page OAuth & Permissions"},
	{"xoxd-", "a browser's cookie: take the bot token from the app's page OAuth & Permissions"},
	{"xoxs-", "a browser's token: take the bot token from the app's page OAuth & Permissions"},
	{"bearer ", "a header: leave out what is before xoxb-"}, {"token ", "a header: leave out what is before xoxb-"},
	{"slack_bot_token=", "an assignment: leave out what is before xoxb-"},
}

// tokenKind is what a text is that cannot be a bot token.
func tokenKind(token string) (kind string, found bool) {
	lower := strings.ToLower(strings.TrimSpace(token))
	if strings.HasPrefix(lower, "xoxe.xoxb-") { // with token rotation; Slack's answer will say that it has expired
		return "", false
	}
	for _, k := range kindsOfTokens {
		if strings.HasPrefix(lower, k.prefix) {
			return k.kind, true
		}
	}
	return "", false
}

func hintWebhook(value string) string {
	switch {
	case strings.HasPrefix(value, "xox"), strings.HasPrefix(value, "xapp"):
		return "it is a token: that of a bot belongs into SLACK_BOT_TOKEN"
	case strings.HasPrefix(value, "hooks.slack.com"):
		return "https:// is missing before it"
	}
	return ""
}

func hintAPI(value string) string {
	switch {
	case strings.HasPrefix(value, "xox"):
		return "it is a token: that of a bot belongs into SLACK_BOT_TOKEN"
	case !strings.Contains(value, "://"):
		return "https:// is missing before it"
	}
	return ""
}
