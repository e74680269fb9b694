package isolation

import (
	"fmt"
	"testing"
	"time"

	"notifier/test/kit"
)

// TestASlowChannelCostsOthersNothing is for everyday use: what waited for the slow channel would wait for a quarter of an hour.
func TestASlowChannelCostsOthersNothing(t *testing.T) {
	few := func(w *world) []string { return w.publishTo(quietChannels, "quiet", 5) }
	besideASlowChannel(t, "paced", 1000, "", few, kit.Patience)
}

func TestManyEventsOfASlowChannelCostOthersNothing(t *testing.T) {
	needsFull(t)
	steady := func(w *world) []string { return w.publishQuiet("quiet", 20*time.Second) }
	t.Run("paced", func(t *testing.T) {
		besideASlowChannel(t, "paced", 10_000, "", steady, 2*time.Second)
	})
	t.Run("hanging", func(t *testing.T) {
		besideASlowChannel(t, "hanging", 10_000, "C0SLOWEST", steady, 2*time.Second)
	})
}

// besideASlowChannel admits events of one channel, which takes one a second, or does not answer. Meanwhile events of other channels
// are posted, and events that the limits refuse are decided, as if they were not there.
func besideASlowChannel(t *testing.T, name string, slow int, hanging string, publishQuiet func(*world) []string, bar time.Duration) {
	t.Helper()
	const mostMemory = 64.0
	w := newWorld(t, settings{
		"SLACK_CHANNEL": "C0SLOWEST", "SLACK_ROUTES": quietRoutes(), "SLACK_PACE": pace,
		"LIMIT_GLOBAL": wide, "LIMIT_CATEGORY": wide, "LIMIT_OVERRIDES": "refused=1/1h",
		"BATCH_SIZE": fmt.Sprint(slow * 512 / 10_000), // the room for what is held is a multiple of it
	})
	w.door.hang(hanging)
	_, mode := limit(t, 12, window)
	mode.RetryAfter = window
	w.mode(mode)
	w.startWorkers(1)
	for i := range slow {
		w.publish("slow", fmt.Sprintf("slow-%d", i))
	}
	w.flush()
	if !kit.Within(kit.Patience, func() bool { return w.admitted("slow") == slow }) {
		t.Errorf("%d of %d events of the slow channel are admitted after %s, expected all", w.admitted("slow"), slow, kit.Patience)
	}

	refused := w.publishRefused()
	posted := publishQuiet(w)
	refused = append(refused, w.publishRefused()...)
	posts := w.waitPosted(kit.Patience, posted)
	decisions := w.waitDropped(kit.Patience, refused)
	memory := w.workers[0].peakMemory(t)
	met := posts.missing+decisions.missing == 0 && posts.p99() < bar && decisions.p99() < bar && memory < mostMemory
	judge(t, "3. "+fmt.Sprint(slow)+" events of a slow channel, "+name, met,
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
	kit.Within(limit, func() bool {
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
