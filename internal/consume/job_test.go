package consume_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
)

func theLimits(c *setup) { c.global, c.category = "100/30m", "10/30m" }

func TestThreeReplicasSendWhatTheLimitsAllowAndLogTheRest(t *testing.T) {
	s := newStation(t)
	for range 3 {
		s.started(func(c *setup) { c.global, c.category = "20/30m", "4/30m" })
	}
	for i := range 7 {
		for category := range 8 {
			s.publish(fmt.Sprintf("c%d", category), fmt.Sprintf("event %d of c%d", i, category))
		}
	}
	lines := s.settled(56)
	s.expectEachPostedOnce(20)
	s.expectNothingLeft()

	seqs, sentOf := map[any]int{}, map[any]int{}
	for _, l := range lines {
		seqs[l["stream_seq"]]++
		switch l["outcome"] {
		case "sent":
			sentOf[l["category"]]++
		case "dropped":
			want := map[any]string{"global": "20/30m", "category": "4/30m"}[l["reason"]]
			if want == "" || l["limit"] != want {
				t.Errorf("dropped for %v with limit %v, expected global with 20/30m or category with 4/30m", l["reason"], l["limit"])
			}
		}
	}
	if len(seqs) != 56 {
		t.Errorf("the lines name %d events, expected each of 56 once", len(seqs))
	}
	for category, n := range sentOf {
		if n > 4 {
			t.Errorf("%d events of %v were sent, expected at most 4", n, category)
		}
	}
	count := tally(lines)
	if count["sent"] != 20 || count["dropped global"]+count["dropped category"] != 36 {
		t.Errorf("outcomes %v, expected 20 sent and 36 dropped by a limit", count)
	}
}

// A category's budget is its own: the storm of one leaves the others alone.
func TestAStormOfOneCategoryIsHeldToItsLimit(t *testing.T) {
	s := newStation(t)
	s.started(theLimits)
	s.publishMany("storm", 300)
	s.publish("calm", "still heard")
	want := map[string]int{"sent": 11, "dropped category": 290}
	if diff := cmp.Diff(want, tally(s.settled(301))); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if s.posted()["still heard"] != 1 {
		t.Error("the other category's event was not sent")
	}
}

func TestAnEventPublishedTwiceIsSentOnce(t *testing.T) {
	s := newStation(t)
	s.createStream(func(config *jetstream.StreamConfig) { config.Duplicates = 100 * time.Millisecond })
	s.started()

	s.publish("errors", "by header", "Nats-Msg-Id", "h1")
	s.publish("errors", `{"id":"p1","text":"by payload"}`)
	s.settled(2)
	second := uint64(0)
	s.eventually("the stream takes the same Nats-Msg-Id again", func() bool {
		second = s.publish("errors", "by header", "Nats-Msg-Id", "h1")
		return second > 2
	})
	s.publish("errors", `{"id":"p1","text":"by payload"}`)
	want := map[string]int{"sent": 2, "dropped duplicate": 2}
	if diff := cmp.Diff(want, tally(s.settled(4))); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	s.expectEachPostedOnce(2)
	if charged := s.charged(); charged != 2 {
		t.Errorf("%d slots are taken, expected 2", charged)
	}
}

func TestAnIDMayBeSentAgainAfterTheDedupeWindow(t *testing.T) {
	s := newStation(t)
	s.started(func(c *setup) { c.dedupe, c.global, c.category = 50*time.Millisecond, "100/50ms", "100/50ms" })
	n := 0
	s.eventually("the same id is sent again", func() bool {
		s.publish("errors", `{"id":"again","text":"hello"}`)
		n++
		return tally(s.settled(n))["sent"] == 2
	})
}

func TestAnEventTooOldIsDroppedAndChargedToNothing(t *testing.T) {
	s := newStation(t)
	s.started(func(c *setup) { c.maxAge = time.Minute })
	old, recent := time.Now().Add(-2*time.Minute), time.Now().Add(-30*time.Second)
	s.publish("errors", fmt.Sprintf(`{"text":"old","time":%q}`, old.Format(time.RFC3339)))
	s.publish("errors", fmt.Sprintf(`{"text":"recent","time":%q}`, recent.Format(time.RFC3339)))
	want := map[string]int{"sent": 1, "dropped expired": 1}
	if diff := cmp.Diff(want, tally(s.settled(2))); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if charged := s.charged(); charged != 1 {
		t.Errorf("%d slots are taken, expected 1", charged)
	}
	s.expectNothingLeft()
}
