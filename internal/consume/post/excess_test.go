package post

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/feed"
	"notifier/internal/consume/post/lanes"
	"notifier/test/kit"
)

// fullFeed has no room, and takes nothing back.
type fullFeed struct{}

func (fullFeed) Full() bool          { return true }
func (fullFeed) WhyNotLater() string { return "max_deliver" }

// A worker that stops hands nothing back for later: it goes back at once. Here the server takes nothing,
// which is reported when it is tried.
func TestAWorkerThatStopsHandsNothingBackForLater(t *testing.T) {
	s := New(Settings{Concurrency: 1, Capacity: 4, Budget: 1 << 20, Feed: fullFeed{}, Tracker: quiet(), Log: zap.NewNop()})
	s.later = func(*feed.Delivery, time.Duration) bool { return false }
	for range 5 {
		d := &feed.Delivery{}
		s.lanes.Add("C1", lanes.Item[*posting]{Value: &posting{Admitted: Admitted{Delivery: d}}})
	}
	first, err := s.lanes.Next(t.Context())
	kit.Check(t, err)
	first.PauseChannel(time.Hour)
	first.Return(0)
	s.Stopping()
	if s.HandBackExcess(); s.Tracker.Unavailable(availability.Backlog) {
		t.Error("it has tried to hand events back")
	}
	s.stopping.Store(false)
	if s.HandBackExcess(); !s.Tracker.Unavailable(availability.Backlog) {
		t.Error("it has not tried to hand events back: the test shows nothing")
	}
}
