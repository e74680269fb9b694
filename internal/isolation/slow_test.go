package isolation

import (
	"fmt"
	"testing"
	"time"

	"notifier/internal/testkit"
)

// TestASlowChannelCostsOthersNothing: 10,000 events of one channel are admitted, and it takes one a second, or does not
// answer. Events of other channels are posted, and events that the limits refuse are decided, as if they were not there.
func TestASlowChannelCostsOthersNothing(t *testing.T) {
	t.Run("paced", func(t *testing.T) {
		besideASlowChannel(t, "paced", "")
	})
	t.Run("hanging", func(t *testing.T) {
		besideASlowChannel(t, "hanging", "C0SLOWEST")
	})
}

func besideASlowChannel(t *testing.T, name, hanging string) {
	t.Helper()
	const bar, mostMemory = 2 * time.Second, 64.0
	w := newWorld(t, settings{
		"SLACK_CHANNEL": "C0SLOWEST", "SLACK_ROUTES": quietRoutes(), "SLACK_PACE": "10/" + seconds(10).String(),
		"LIMIT_GLOBAL": wide, "LIMIT_CATEGORY": wide, "LIMIT_OVERRIDES": "refused=1/1h",
		"BATCH_SIZE": fmt.Sprint(scaled(512)), // the room for what is held is a multiple of it
	})
	w.door.hang(hanging)
	_, mode := limit(t, 12, seconds(10))
	mode.RetryAfter = seconds(10)
	w.mode(mode)
	w.startWorkers(1)
	slow := scaled(10_000)
	for i := range slow {
		w.publish("slow", fmt.Sprintf("slow-%d", i))
	}
	w.flush()
	if !testkit.Within(testkit.Patience, func() bool { return w.admitted("slow") == slow }) {
		t.Errorf("%d of %d events of the slow channel are admitted after %s, expected all", w.admitted("slow"), slow, testkit.Patience)
	}

	refused := w.publishRefused()
	posted := w.publishQuiet("quiet", max(seconds(20), 3*time.Second))
	refused = append(refused, w.publishRefused()...)
	posts := w.waitPosted(10*time.Second, posted)
	decisions := w.waitDropped(10*time.Second, refused)
	memory := w.workers[0].peakMemory(t)
	judge(t, "3. "+fmt.Sprint(slow)+" events of a slow channel, "+name, posts.p99() < bar && decisions.p99() < bar && memory < mostMemory,
		fmt.Sprintf("p99 < %s, worker below %.0f MiB", bar, mostMemory),
		"other channels %s; dropped %s; worker %.0f MiB", posts, decisions, memory)
}

// publishRefused publishes events of which the limits let one through.
func (w *world) publishRefused() (ids []string) {
	w.Helper()
	for range 50 {
		id := fmt.Sprintf("refused-%d", w.count())
		w.publish("refused", id)
		ids = append(ids, id)
	}
	w.flush()
	return ids
}

// count is how many events were published.
func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.published)
}

// waitDropped waits until all but one of these are dropped, and returns how long each took from its publication.
func (w *world) waitDropped(limit time.Duration, ids []string) latencies {
	w.Helper()
	dropped := map[string]time.Time{}
	testkit.Within(limit, func() bool {
		clear(dropped)
		for id, l := range w.settled() {
			if l.Outcome == "dropped" {
				dropped[id] = l.Time
			}
		}
		return len(dropped) >= len(ids)-1
	})
	decided := make([]string, 0, len(ids))
	admitted := 0
	for _, id := range ids {
		if _, found := dropped[id]; found || admitted > 0 {
			decided = append(decided, id)
		} else {
			admitted++ // the one that waits for the slow channel
		}
	}
	return w.since(decided, dropped)
}
