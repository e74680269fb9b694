package post

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"notifier/internal/snapshot"
)

func TestRefusedChannelIsTriedOnceAMinute(t *testing.T) {
	c := newClosedChannels(zap.NewNop())
	expect := func(when string, closed bool, code string) {
		t.Helper()
		if c.closed("C1", false) != closed || c.code("C1") != code {
			t.Errorf("%s: closed %t for %q, expected %t for %q",
				when, c.closed("C1", false), c.code("C1"), closed, code)
		}
	}
	for range rejectionsToClose - 1 { // occasional ones do not close it
		c.rejected("C1", "is_archived")
	}
	c.accepted("C1")
	for range rejectionsToClose {
		if c.closed("C1", false) {
			t.Fatal("closed too early")
		}
		c.rejected("C1", "is_archived")
	}
	expect("after refusals", true, "is_archived")
	if !c.closed("C1", true) {
		t.Error("a replayed event is let through just after a refusal")
	}
	c.channels["C1"].refused = time.Now().Add(-retryReplayed)
	if c.closed("C1", true) {
		t.Error("a replayed event is not let through later on")
	}
	expect("for other events", true, "is_archived")
	c.channels["C1"].closedUntil = time.Now() // a minute later
	expect("a minute later", false, "is_archived")
	c.rejected("C1", "not_in_channel")
	expect("after another refusal", true, "not_in_channel")
	c.accepted("C1")
	expect("after a success", false, "")
	if code := refused(c, "C1"); code != "" {
		t.Errorf("refused with %s after a success", code)
	}
	for range rejectionsToClose {
		c.rejected("", "channel_is_archived")
	}
	if refused(c, webhookLane) != "channel_is_archived" {
		t.Error("the webhook's channel is not refused under the name that waits give it")
	}
}

// refused returns Slack's code in the snapshot of a lane.
func refused(c *closedChannels, lane string) string {
	queues := []snapshot.Channel{{Name: lane}}
	c.describe(queues)
	return queues[0].Refused
}

func TestSnapshotHasTheLastReplyOfEachChannel(t *testing.T) {
	c := newClosedChannels(zap.NewNop())
	c.rejected("C1", "is_archived")
	c.rejected("", "channel_is_archived")
	c.rejected("C2", "is_archived")
	c.accepted("C2")
	queues := []snapshot.Channel{{Name: "C1"}, {Name: webhookLane}, {Name: "C2"}, {Name: "C3"}}
	c.describe(queues)
	for i, code := range []string{"is_archived", "channel_is_archived", "", ""} {
		got := queues[i].Rejected
		if (got == nil) != (code == "") || got != nil && (got.Code != code || got.First.IsZero() || got.Last.IsZero()) {
			t.Errorf("%s has the rejection %+v, expected one with %q", queues[i].Name, got, code)
		}
	}
	if queues[2].Accepted.IsZero() || !queues[0].Accepted.IsZero() {
		t.Errorf("C2 accepted a message at %v, C1 at %v", queues[2].Accepted, queues[0].Accepted)
	}
}
