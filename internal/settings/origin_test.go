package settings

import (
	"regexp"
	"testing"
)

// No setting shows a secret. A new setting that can hold one needs a rule in its tag.
func TestShown(t *testing.T) {
	t.Parallel()
	const marker = "hunter2"
	for _, test := range []struct{ rule, value, want string }{
		{"never", "xoxb-" + marker, "set"},
		{"never", "", "(none)"},
		{"servers", "nats://me:" + marker + "@one:4222, " + marker + "@two", "nats://one:4222, nats://two"},
		{"redis", "redis://me:" + marker + "@one:6379/3?password=" + marker + "&addr=" + marker + "@two:6379&master_name=m", "redis://one:6379/3?master_name=m&addr=two:6379"},
		{"redis", "::" + marker, "?"},
		{"api", "https://me:" + marker + "@slack.example/" + marker + "?" + marker, "https://slack.example/..."},
		{"api", "https://me:" + marker + "@slack.example/slack/api/#" + marker, "https://slack.example/slack/api/"},
		{"api", "https://slack.com", "https://slack.com"},
		{"api", "%" + marker, "?"},
		{"", "a\nb", "a?b"},
	} {
		if got := (Origin{rule: test.rule, value: test.value}).Shown(); got != test.want {
			t.Errorf("%s %q is shown as %q, expected %q", test.rule, test.value, got, test.want)
		}
	}
	holdsSecret := regexp.MustCompile(`_URL$|_TOKEN$|PASSWORD|SECRET`)
	_, origins := read(&Problems{})
	for _, o := range origins {
		if (o.rule != "") != holdsSecret.MatchString(o.Name) {
			t.Errorf("%s is shown by the rule %q", o.Name, o.rule)
		}
	}
}
