package settings

import (
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"strings"
)

// hint guesses why the value of a variable is invalid; Add appends the guess to the problem. It covers common
// mistakes and invisible ones, and returns "" if it has no guess. A hint never quotes a secret.
func hint(variable, value string) string {
	isLimit := strings.HasPrefix(variable, "LIMIT_") || variable == "SLACK_PACE"
	if r := lookalike(value); r != 0 {
		if hidden(variable) {
			return "it has a character that only looks like one of ASCII: type it again"
		}
		return fmt.Sprintf("%q only looks like a character of ASCII: type it again", r)
	}
	switch variable {
	case "NATS_URL", "REDIS_URL":
		if badUser(value) {
			return "in a password # / ? @ and % are written %23 %2F %3F %40 and %25"
		}
	case "SLACK_BOT_TOKEN":
		if strings.HasPrefix(value, "xapp-") {
			return "it is an app-level token (xapp-): take the bot token from the app's page OAuth & Permissions"
		}
		if strings.Contains(value, "hooks.slack.com") {
			return "it is a webhook, which belongs into SLACK_WEBHOOK_URL"
		}
	case "SLACK_WEBHOOK_URL":
		if strings.HasPrefix(value, "xox") {
			return "it is a token: that of a bot belongs into SLACK_BOT_TOKEN"
		}
	}
	if found := swapped.FindStringSubmatch(value); isLimit && found != nil {
		return "COUNT and DURATION are swapped; write " + found[2] + "/" + found[1]
	}
	if strings.TrimSpace(value) != value {
		return "there is white space around it: remove that"
	}
	return ""
}

var swapped = regexp.MustCompile(`(?:^|[=+,])\s*((?:\d+(?:h|m|s|ms))+)\s*/\s*(\d+)\s*(?:$|[+,])`)

// hidden reports whether the value of a variable must not be shown as it is.
func hidden(variable string) bool {
	field, found := reflect.TypeFor[Environment]().FieldByNameFunc(func(name string) bool {
		field, _ := reflect.TypeFor[Environment]().FieldByName(name)
		return field.Tag.Get("envconfig") == variable
	})
	return !found || field.Tag.Get("shown") != ""
}

// lookalike returns the first character that input methods, word processors and web pages substitute for an
// ASCII one. It returns 0 if there is no such character.
func lookalike(value string) rune {
	for _, r := range value {
		if r >= 0xFF01 && r <= 0xFF5E ||
			strings.ContainsRune(
				"\u00a0\u2007\u202f\u3000\u200b\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb\u2010\u2011\u2012\u2013\u2014\u2044\u2215\u2217",
				r,
			) {
			return r
		}
	}
	return 0
}

// badUser reports whether the text before the last @ of a URL is not a valid user and password.
func badUser(value string) bool {
	_, rest, _ := strings.Cut(value, "://")
	user := rest[:max(strings.LastIndex(rest, "@"), 0)]
	if _, err := url.PathUnescape(user); err != nil {
		return true
	}
	return strings.ContainsAny(user, "#/?@[]")
}

var notOfBots = regexp.MustCompile(`(?i)^(https?://|hooks\.slack\.com|xapp-|xoxe|xox[cds]-|slack_bot_token=)`)

// mayBeBots reports whether a worker may be able to post with a token. One of a person (xoxp-) can. One of
// token rotation (xoxe.xoxb-) may have expired, and Slack says so.
func mayBeBots(token string) bool {
	return strings.HasPrefix(token, "xoxe.xoxb-") || !notOfBots.MatchString(token)
}
