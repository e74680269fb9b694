package isolation

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// quietChannels are the channels that a busy one must cost nothing, C0QUIET0 to C0QUIET4.
const quietChannels = 5

// quietRoutes is a SLACK_ROUTES for them: the category quiet-N goes to C0QUIETN.
func quietRoutes() string {
	var routes []string
	for n := range quietChannels {
		routes = append(routes, fmt.Sprintf("quiet-%d=C0QUIET%d", n, n))
	}
	return strings.Join(routes, ",")
}

// publishQuiet publishes events to the quiet channels in turn for d, six to each of them in a window of the pace.
func (w *world) publishQuiet(name string, d time.Duration) (ids []string) {
	w.Helper()
	ticker := time.NewTicker(window / (6 * quietChannels))
	defer ticker.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-ticker.C {
		n := len(ids)
		id := fmt.Sprintf("%s-%d", name, n)
		w.publish(fmt.Sprintf("quiet-%d", n%quietChannels), id)
		ids = append(ids, id)
	}
	w.flush()
	return ids
}

// wide are limits that let everything through.
const wide = "100000/1h"

// TestAPausedChannelPausesNoOther: Slack refuses a busy channel and asks for 20 s. Meanwhile others get their messages at
// once, the busy one gets no request, and it goes on afterwards.
func TestAPausedChannelPausesNoOther(t *testing.T) {
	needsFull(t)
	const pause = 20 * time.Second
	w := newWorld(t, settings{
		"SLACK_CHANNEL": "C0BUSIEST", "SLACK_ROUTES": quietRoutes(), "SLACK_PACE": pace,
		"LIMIT_GLOBAL": wide, "LIMIT_CATEGORY": wide,
	})
	_, mode := limit(t, 8, window)
	mode.RetryAfter = pause
	w.mode(mode)
	w.startWorkers(3)
	quiet := w.waitPosted(kit.Patience, w.publishQuiet("before", 5*time.Second)) // all lanes are in use
	t.Logf("before: %s", quiet)

	var busy []string
	for i := range 20 {
		busy = append(busy, fmt.Sprintf("busy-%d", i))
		w.publish("busy", busy[i])
	}
	kit.Eventually(t, "the busy channel is refused", func() bool { return len(w.door.those(limited)) > 0 })
	refusedAt := w.door.those(limited)[0].at
	ids := w.publishQuiet("during", time.Until(refusedAt.Add(pause)))
	latencies := w.waitPosted(5*time.Second, ids)
	// A worker learns of the pause when it asks for its next permit; what was permitted before may be refused as well.
	during := w.door.those(func(r request) bool {
		return r.channel == "C0BUSIEST" && r.at.After(refusedAt.Add(window/2)) && r.at.Before(refusedAt.Add(pause-50*time.Millisecond))
	})
	others := w.door.those(func(r request) bool { return limited(r) && r.channel != "C0BUSIEST" })
	judge(t, "2. one channel paused", latencies.p99() < time.Second && len(during) == 0 && len(others) == 0,
		"others' posts p99 < 1s, no request to the paused one",
		"%s; %d requests to the paused one", latencies, len(during))

	w.mode(devstack.Mode{})
	if left := w.waitPosted(kit.Patience, busy); left.missing > 0 {
		t.Errorf("%d of %d events of the paused channel are not posted when it takes posts again", left.missing, len(busy))
	}
}
