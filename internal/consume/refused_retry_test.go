package consume

import (
	"testing"
	"time"

	"go.uber.org/zap"
)

func TestARefusedChannelIsTriedOnceAMinute(t *testing.T) {
	c := newRefusedChannels(zap.NewNop())
	for range refusalsToClose {
		if _, closed := c.closed("C1"); closed {
			t.Fatal("closed too early")
		}
		c.rejected("C1", "is_archived")
	}
	if code, closed := c.closed("C1"); !closed || code != "is_archived" {
		t.Fatalf("closed %t for %q, expected closed for is_archived", closed, code)
	}
	c.channels["C1"].next = time.Now() // a minute later
	if _, closed := c.closed("C1"); closed {
		t.Error("closed, expected one post to be let through")
	}
	if _, closed := c.closed("C1"); !closed {
		t.Error("a second post is let through at once")
	}
	c.rejected("C1", "not_in_channel")
	if code, closed := c.closed("C1"); !closed || code != "not_in_channel" {
		t.Errorf("closed %t for %q, expected closed for the latest code", closed, code)
	}
	c.accepted("C1")
	if _, closed := c.closed("C1"); closed || len(c.list()) != 0 {
		t.Errorf("closed %t with the list %v after a success", closed, c.list())
	}
}
