package suggest

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	commands := []string{"serve", "status", "why", "simulate", "check", "events", "mute", "unmute", "limit", "dead"}
	settings := []string{"LIMIT_GLOBAL", "LIMIT_GROUP", "SLACK_BOT_TOKEN", "NATS_STREAM", "REDIS_NAMESPACE", "REDIS_URL"}
	for _, test := range []struct {
		word  string
		known []string
		want  string // empty: none
	}{
		{"stauts", commands, "status"}, {"chekc", commands, "check"}, {"STATUS", commands, "status"}, {"wyh", commands, ""},
		{"wh", commands, "why"}, {"event", commands, "events"}, {"mutes", commands, "mute"}, {"unmuted", commands, "unmute"},
		{"publish", commands, ""}, {"x", commands, ""}, {"", commands, ""}, {"status", nil, ""}, {"a", []string{""}, ""},
		{"LIMIT_GLOBL", settings, "LIMIT_GLOBAL"}, {"NATS_STREEM", settings, "NATS_STREAM"}, {"SLACK_TOKEN", settings, "SLACK_BOT_TOKEN"},
		{"REDIS_NAMESPCE", settings, "REDIS_NAMESPACE"}, {"HOME", settings, ""}, {"KUBERNETES_SERVICE_HOST", settings, ""},
		{"größe", []string{"grösse", "größer"}, "größer"},
		{strings.Repeat("a", 128), []string{strings.Repeat("a", 127)}, strings.Repeat("a", 127)},
		{strings.Repeat("a", 129), []string{strings.Repeat("a", 128)}, ""}, {"a", []string{strings.Repeat("a", 1<<20)}, ""},
		{"check\x00\xff", commands, "check"},
		{"cart", []string{"card", "cars"}, "card"}, // the first of those as near
	} {
		got, found := Nearest(test.word, test.known)
		if got != test.want || found != (test.want != "") {
			t.Errorf("%.40q: %q, %t; expected %q", test.word, got, found, test.want)
		}
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	for most, want := range map[int]string{0: "", 2: "", 3: "SLACK_BOT_TOKEN"} {
		if got, found := Within("SLACK_APP_TOKEN", []string{"SLACK_BOT_TOKEN"}, most); got != want || found != (want != "") {
			t.Errorf("within %d: %q, %t; expected %q", most, got, found, want)
		}
	}
}
