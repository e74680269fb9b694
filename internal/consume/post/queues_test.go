package post

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/post/lanes"
	"notifier/internal/snapshot"
)

// waitingIn returns a sender with n events in each lane, and the first turn of the first lane.
func waitingIn(t *testing.T, n int, channels ...string) (*Sender, *lanes.Turn[*posting]) {
	t.Helper()
	s := New(Settings{Capacity: 100, Budget: 1 << 20, Channels: channels, Tracker: quiet(), Log: zap.NewNop()})
	for _, channel := range channels {
		for range n {
			s.lanes.Add(channel, lanes.Item[*posting]{Value: &posting{channel: channel}, Bytes: 1, Since: time.Now()})
		}
	}
	first, err := s.lanes.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s, first
}

// quiet returns a tracker that logs nothing.
func quiet() *availability.Tracker {
	return availability.New(zap.NewNop(), func(availability.Dependency) int { return 0 })
}

func TestQueueNamesTheCauseOfItsDelay(t *testing.T) {
	for name, test := range map[string]struct {
		ends   lanes.Result
		lost   func(*availability.Tracker)
		why    string
		others string
	}{
		"nothing":  {},
		"its pace": {ends: lanes.Result{Pace: time.Minute}, why: "pace"},
		"a pause":  {ends: lanes.Result{Signal: lanes.ChannelPaused, AtLeast: time.Minute}, why: "slack"},
		"a failure without room in its pace": {
			ends: lanes.Result{Pace: time.Minute}, why: "slack",
			lost: func(a *availability.Tracker) { a.ChannelLost("#alerts", errors.New("503")) },
		},
		"Slack is unavailable": {
			why: "slack", others: "slack",
			lost: func(a *availability.Tracker) { a.Lost(availability.Slack, errors.New("refused")) },
		},
		"Redis": {lost: func(a *availability.Tracker) { a.Lost(availability.Redis, errors.New("refused")) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			s, first := waitingIn(t, 2, "#alerts", "#builds")
			if test.lost != nil {
				test.lost(s.settings.Tracker)
			}
			first.Finish(test.ends)
			for range rejectionsToClose {
				s.channels.rejected("#builds", "is_archived")
			}
			rejected := &snapshot.Rejection{Code: "is_archived", First: began, Last: began}
			want := []snapshot.Channel{
				{Name: "#alerts", Queued: 2, Oldest: began, Why: test.why},
				{Name: "#builds", Queued: 2, Oldest: began, Why: test.others, Refused: "is_archived", Rejected: rejected},
			}
			if diff := cmp.Diff(want, s.Channels()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		})
	}
}

func TestOnlyTheWorkspacePausesFetching(t *testing.T) {
	s, first := waitingIn(t, 2, "#alerts", "#builds")
	first.Finish(lanes.Result{Signal: lanes.ChannelPaused, AtLeast: time.Hour})
	if s.Paused() {
		t.Error("paused because of one channel")
	}
	second, err := s.lanes.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second.Finish(lanes.Result{Signal: lanes.WorkspacePaused, AtLeast: time.Hour})
	if !s.Paused() {
		t.Error("not paused while no channel takes posts")
	}
}
