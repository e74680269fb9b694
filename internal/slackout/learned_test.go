package slackout

import (
	"testing"
	"time"
)

// An admin may grant the scope while the process runs.
func TestARefusalIsForgottenAfterAWhile(t *testing.T) {
	l := newLearned()
	l.rememberRefusal("C1", "missing_scope")
	if code := l.refusal("C1"); code != "missing_scope" {
		t.Errorf("code %q, expected missing_scope", code)
	}
	l.refusals["C1"] = refusal{code: "missing_scope", until: time.Now()}
	if code := l.refusal("C1"); code != "" {
		t.Errorf("code %q an hour later, expected none", code)
	}
}
