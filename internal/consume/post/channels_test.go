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
		if c.closed("C1") != closed || c.code("C1") != code {
			t.Errorf("%s: closed %t for %q, expected %t for %q", when, c.closed("C1"), c.code("C1"), closed, code)
		}
	}
	for range rejectionsToClose {
		if c.closed("C1") || !c.try("C1") {
			t.Fatal("closed too early")
		}
		c.rejected("C1", "is_archived")
	}
	expect("after refusals", true, "is_archived")
	if c.try("C1") {
		t.Error("a post is let through at once")
	}
	c.channels["C1"].next = time.Now() // a minute later
	expect("a minute later", false, "is_archived")
	expect("without a permit", false, "is_archived") // nobody has tried
	if !c.try("C1") || c.try("C1") {
		t.Error("expected exactly one post to be let through")
	}
	c.rejected("C1", "not_in_channel")
	expect("after another refusal", true, "not_in_channel")
	c.accepted("C1")
	expect("after a success", false, "")
	if len(c.list()) != 0 {
		t.Errorf("the list is %v after a success", c.list())
	}
}
