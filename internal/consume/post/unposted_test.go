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
)

// held is a result of Held, with the words that have events.
func held(events map[string]int) map[string]int {
	some := map[string]int{}
	for why, n := range events {
		if n > 0 {
			some[why] = n
		}
	}
	return some
}

func TestEveryHeldEventIsCountedByItsCause(t *testing.T) {
	unposted := []Unposted{
		{Channel: "#alerts", Events: 42, Parked: 30, Why: "slack"},
		{Channel: "#builds", Events: 7, Why: "pace"},
		{Channel: "#deploys", Events: 5, Parked: 5, Why: "slack"},
		{Channel: "#quiet"},
		{Channel: "#working", Events: 3},
	}
	const inFlight = 22 + 8 // what is not parked, and what is not decided yet
	alerts, deploys := availability.Wait{For: "slack", Channel: "#alerts"}, availability.Wait{For: "slack", Channel: "#deploys"}
	for name, test := range map[string]struct {
		waits    []availability.Wait
		unposted []Unposted
		want     map[string]int
	}{
		"nothing is waited for": {nil, unposted[3:], map[string]int{}},
		"a pace":                {nil, unposted[1:2], map[string]int{"pace": 7}},
		"one channel":           {[]availability.Wait{alerts}, unposted, map[string]int{"slack": 42, "pace": 7}},
		"two channels":          {[]availability.Wait{alerts, deploys}, unposted, map[string]int{"slack": 47, "pace": 7}},
		"everything":            {[]availability.Wait{{For: "redis"}}, unposted[3:], map[string]int{"redis": inFlight}},
		"everything, and what the server keeps": {
			[]availability.Wait{{For: "slack"}, alerts, deploys}, unposted, map[string]int{"slack": inFlight + 35, "pace": 7},
		},
		"dead events alone":                             {[]availability.Wait{{For: "dead_letter"}}, unposted[1:2], map[string]int{"dead_letter": 2, "pace": 7}},
		"the clock of Redis, with which work continues": {[]availability.Wait{{For: availability.Clock.String()}}, nil, map[string]int{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Held(inFlight, 2, test.waits, test.unposted)
			if diff := cmp.Diff(test.want, held(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, why := range append(availability.Words(), WaitPace) {
				if _, there := got[why]; !there {
					t.Errorf("no number for %s: its series would come and go", why)
				}
			}
		})
	}
}

// waitingIn is a sender with n events in the lane of each channel, and the first one's turn.
func waitingIn(t *testing.T, n int, channels ...string) (*Sender, *turn) {
	t.Helper()
	s := New(Settings{Concurrency: 8, Capacity: 100, Budget: 1 << 20, Channels: channels, Tracker: quiet(), Log: zap.NewNop()})
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

// quiet is a tracker that logs nothing.
func quiet() *availability.Tracker {
	return availability.New(zap.NewNop(), func(availability.Dependency) int { return 0 })
}

func TestAChannelNamesWhatItsEventsWaitFor(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(s *Sender, first *turn)
		why     string
		others  string
		closed  time.Duration
	}{
		"nothing but room, which some did not have": {func(*Sender, *turn) {}, "pace", "", 0},
		"its pace":  {func(_ *Sender, first *turn) { first.Pace(time.Minute) }, "pace", "", 0},
		"a pause":   {func(_ *Sender, first *turn) { first.PauseChannel(time.Minute) }, "slack", "", time.Minute},
		"a failure": {func(s *Sender, _ *turn) { s.Tracker.ChannelLost("#alerts", errors.New("503")) }, "slack", "", 0},
		"a failure in a channel without room": {func(s *Sender, first *turn) {
			first.Pace(time.Minute)
			s.Tracker.ChannelLost("#alerts", errors.New("503"))
		}, "slack", "", 0},
		"Slack is unavailable": {func(s *Sender, _ *turn) { s.Tracker.Lost(availability.Slack, errors.New("refused")) }, "slack", "slack", 0},
		"a revoked token":      {func(s *Sender, _ *turn) { s.Tracker.Lost(availability.Credentials, errors.New("revoked")) }, "slack", "slack", 0},
		"Redis":                {func(s *Sender, _ *turn) { s.Tracker.Lost(availability.Redis, errors.New("refused")) }, "pace", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				s, first := waitingIn(t, 2, "#alerts", "#builds")
				time.Sleep(3 * time.Second) // of synctest's clock
				test.happens(s, first)
				first.Return(0)
				s.lanes.Parked("#alerts", lanes.Item[*posting]{Since: began.Add(-time.Hour)}, time.Minute)
				want := []Unposted{
					{Channel: "#alerts", Events: 3, Parked: 1, Oldest: began.Add(-time.Hour), Why: test.why, Closed: test.closed},
					{Channel: "#builds", Events: 2, Oldest: began, Why: test.others},
				}
				if diff := cmp.Diff(want, s.Unposted()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// One channel that takes no posts is no reason to fetch nothing; all of them are.
func TestPaused(t *testing.T) {
	s, first := waitingIn(t, 1, "#alerts")
	first.PauseChannel(time.Hour)
	if s.Paused() {
		t.Error("paused because of one channel")
	}
	first.PauseWorkspace(time.Hour)
	if !s.Paused() {
		t.Error("not paused while no channel takes posts")
	}
}
