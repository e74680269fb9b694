package settings

import (
	"os"
	"regexp"
	"testing"

	"notifier/test/kit"
)

// .env.example is valid with every commented-out setting in use, once the required ones are filled in.
func TestEnvExample(t *testing.T) {
	text, err := os.ReadFile("../../.env.example")
	kit.Check(t, err)
	values := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^#?([A-Z_]+)=(.*)$`).FindAllStringSubmatch(string(text), -1) {
		if _, twice := values[line[1]]; twice {
			t.Errorf("%s is listed twice", line[1])
		}
		values[line[1]] = line[2]
	}
	for _, name := range []string{"SLACK_BOT_TOKEN", "SLACK_CHANNEL"} {
		if value, found := values[name]; !found || value != "" {
			t.Errorf("%s=%s, expected it, to be filled in", name, value)
		}
	}
	values["SLACK_BOT_TOKEN"], values["SLACK_CHANNEL"] = "xoxb-1", "#alerts"
	if len(values) < 20 {
		t.Errorf("only %d lines are found: %v", len(values), values)
	}
	for name, value := range values {
		t.Setenv(name, value)
	}
	s, err := loaded(t)
	kit.Check(t, err)
	if len(s.Unknown) > 0 {
		t.Errorf("taken for mistakes: %v", s.Unknown)
	}
}
