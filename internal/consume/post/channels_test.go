package post

import (
	"testing"
	"time"

	"go.uber.org/zap"
)

func TestARefusedChannelIsTriedOnceAMinute(t *testing.T) {
	c := newClosedChannels(zap.NewNop())
	expect := func(when string, closed bool, code string) {
		t.Helper()
		if c.closed("C1", false) != closed || c.code("C1") != code {
			t.Errorf("%s: closed %t for %q, expected %t for %q", when, c.closed("C1", false), c.code("C1"), closed, code)
		}
	}
	for range rejectionsToClose {
		if c.closed("C1", false) || !c.try("C1", false) {
			t.Fatal("closed too early")
		}
		c.rejected("C1", "is_archived")
	}
	expect("after refusals", true, "is_archived")
	if c.try("C1", false) {
		t.Error("a post is let through at once")
	}
	if !c.closed("C1", true) || c.try("C1", true) {
		t.Error("a replayed event is let through just after a refusal")
	}
	c.channels["C1"].refused = time.Now().Add(-retryReplayed)
	for range 2 { // the first does not know yet how it ends
		if c.closed("C1", true) || !c.try("C1", true) {
			t.Error("a replayed event is not let through later on")
		}
	}
	expect("for other events", true, "is_archived")
	c.channels["C1"].next = time.Now() // a minute later
	expect("a minute later", false, "is_archived")
	expect("without a permit", false, "is_archived") // nobody has tried
	if !c.try("C1", false) || c.try("C1", false) {
		t.Error("expected exactly one post to be let through")
	}
	c.rejected("C1", "not_in_channel")
	expect("after another refusal", true, "not_in_channel")
	c.accepted("C1")
	expect("after a success", false, "")
	if len(c.list()) != 0 {
		t.Errorf("the list is %v after a success", c.list())
	}
	for range rejectionsToClose {
		c.rejected("", "channel_is_archived")
	}
	if list := c.list(); list[webhookLane] == "" {
		t.Errorf("%v, expected the webhook's channel under the name that waits give it", list)
	}
}
