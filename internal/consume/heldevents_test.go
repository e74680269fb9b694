package consume

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/lanes"
)

// held is a result of heldEvents, with the words that have events.
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
	alerts, deploys := Wait{For: "slack", Channel: "#alerts"}, Wait{For: "slack", Channel: "#deploys"}
	for name, test := range map[string]struct {
		waits    []Wait
		unposted []Unposted
		want     map[string]int
	}{
		"nothing is waited for": {nil, unposted[3:], map[string]int{}},
		"a pace":                {nil, unposted[1:2], map[string]int{"pace": 7}},
		"one channel":           {[]Wait{alerts}, unposted, map[string]int{"slack": 42, "pace": 7}},
		"two channels":          {[]Wait{alerts, deploys}, unposted, map[string]int{"slack": 47, "pace": 7}},
		"everything":            {[]Wait{{For: "redis"}}, unposted[3:], map[string]int{"redis": inFlight}},
		"everything, and what the server keeps": {
			[]Wait{{For: "slack"}, alerts, deploys}, unposted, map[string]int{"slack": inFlight + 35, "pace": 7},
		},
		"dead events alone":                             {[]Wait{{For: "dead_letter"}}, unposted[1:2], map[string]int{"dead_letter": 2, "pace": 7}},
		"the clock of Redis, with which work continues": {[]Wait{{For: WaitClock}}, nil, map[string]int{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := heldEvents(inFlight, 2, test.waits, test.unposted)
			if diff := cmp.Diff(test.want, held(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, why := range append(WaitWords(), WaitPace) {
				if _, there := got[why]; !there {
					t.Errorf("no number for %s: its series would come and go", why)
				}
			}
		})
	}
}

// waitingIn is a worker with n events in the lane of each channel, and the first one's turn.
func waitingIn(t *testing.T, n int, channels ...string) (*Worker, *turn) {
	t.Helper()
	a, _ := newObservedAvailability()
	w := &Worker{availability: a, inflight: newInflight(100), letterbox: newLetterbox(100, 1<<20), lanes: lanes.New[*posting](8, laneBound(100, 1<<20), laneBackoff, channels...)}
	for _, channel := range channels {
		for range n {
			w.lanes.Add(channel, lanes.Item[*posting]{Value: &posting{channel: channel}, Bytes: 1, Since: time.Now()})
		}
	}
	first, err := w.lanes.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return w, first
}

func TestAChannelNamesWhatItsEventsWaitFor(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(w *Worker, first *turn)
		why     string
		others  string
		closed  time.Duration
	}{
		"nothing but room, which some did not have": {func(*Worker, *turn) {}, "pace", "", 0},
		"its pace":  {func(_ *Worker, first *turn) { first.Pace(time.Minute) }, "pace", "", 0},
		"a pause":   {func(_ *Worker, first *turn) { first.PauseChannel(time.Minute) }, "slack", "", time.Minute},
		"a failure": {func(w *Worker, _ *turn) { w.availability.channelLost("#alerts", errors.New("503")) }, "slack", "", 0},
		"a failure in a channel without room": {func(w *Worker, first *turn) {
			first.Pace(time.Minute)
			w.availability.channelLost("#alerts", errors.New("503"))
		}, "slack", "", 0},
		"Slack is unavailable": {func(w *Worker, _ *turn) { w.availability.lost(slackPosts, errors.New("refused")) }, "slack", "slack", 0},
		"a revoked token":      {func(w *Worker, _ *turn) { w.availability.lost(slackCredentials, errors.New("revoked")) }, "slack", "slack", 0},
		"Redis":                {func(w *Worker, _ *turn) { w.availability.lost(redisScripts, errors.New("refused")) }, "pace", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				w, first := waitingIn(t, 2, "#alerts", "#builds")
				time.Sleep(3 * time.Second) // of synctest's clock
				test.happens(w, first)
				first.Return(0)
				w.lanes.Parked("#alerts", lanes.Item[*posting]{Since: began.Add(-time.Hour)}, time.Minute)
				want := []Unposted{
					{Channel: "#alerts", Events: 3, Parked: 1, Oldest: began.Add(-time.Hour), Why: test.why, Closed: test.closed},
					{Channel: "#builds", Events: 2, Oldest: began, Why: test.others},
				}
				if diff := cmp.Diff(want, w.Unposted()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}
