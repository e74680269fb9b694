package isolation

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"notifier/internal/wait"
	"notifier/test/kit"
)

// quietChannels counts the channels that a busy one must not delay, C0QUIET0 to C0QUIET4.
const quietChannels = 5

// quietRoutes returns SLACK_ROUTES for the quiet channels: the category quiet-N goes to C0QUIETN.
func quietRoutes() string {
	var routes []string
	for n := range quietChannels {
		routes = append(routes, fmt.Sprintf("quiet-%d=C0QUIET%d", n, n))
	}
	return strings.Join(routes, ",")
}

// publishQuiet publishes n events to the quiet channels in turn, with a pause after each.
func (d *deployment) publishQuiet(n int, pause time.Duration) (ids []string) {
	d.Helper()
	for i := range n {
		ids = append(ids, fmt.Sprintf("quiet-%d", i))
		d.publish(fmt.Sprintf("quiet-%d", i%quietChannels), ids[i])
		wait.For(d.Context(), pause)
	}
	d.flush()
	return ids
}

// TestASlowChannelCostsOthersNothing runs without NOTIFIER_ISOLATION=full. An event queued behind the slow
// channel would wait for a quarter of an hour.
func TestASlowChannelCostsOthersNothing(t *testing.T) {
	few := func(d *deployment) []string { return d.publishQuiet(5*quietChannels, 0) }
	besideASlowChannel(t, "paced", 1000, "", few, time.Minute)
}

func TestManyEventsOfASlowChannelCostOthersNothing(t *testing.T) {
	needsFull(t)
	steady := func(d *deployment) []string { return d.publishQuiet(60, time.Second/3) }
	t.Run("paced", func(t *testing.T) {
		besideASlowChannel(t, "paced", 10_000, "", steady, 2*time.Second)
	})
	t.Run("hanging", func(t *testing.T) {
		besideASlowChannel(t, "hanging", 10_000, "C0SLOWEST", steady, 2*time.Second)
	})
}

// unlimited is a limit that no test reaches.
const unlimited = "100000/1h"

// besideASlowChannel fills a channel that takes one post a second or never responds. Meanwhile events of
// other channels must be posted, and refused events dropped, without delay.
func besideASlowChannel(t *testing.T, name string, slow int, hanging string, others func(*deployment) []string, bar time.Duration) {
	t.Helper()
	const mostMemory = 64.0
	d := newDeployment(t, settings{
		"SLACK_CHANNEL": "C0SLOWEST", "SLACK_ROUTES": quietRoutes(), "SLACK_PACE": pace,
		"LIMIT_GLOBAL": unlimited, "LIMIT_CATEGORY": unlimited, "LIMIT_OVERRIDES": "refused=1/1h",
		"BATCH_SIZE": fmt.Sprint(slow * 512 / 10_000), // scales the maximum of held events
	})
	d.slackProxy.Hang(hanging)
	d.slack.SetLimit(slackLimit(t), window)
	d.startWorkers(1)
	for i := range slow {
		d.publish("slow", fmt.Sprintf("slow-%d", i))
	}
	d.flush()
	if !kit.Within(kit.Patience, func() bool { return d.admitted("slow") == slow }) {
		t.Errorf("%d of %d events of the slow channel are admitted after %s, expected all", d.admitted("slow"), slow, kit.Patience)
	}

	refused := d.publishRefused()
	posted := others(d)
	refused = append(refused, d.publishRefused()...)
	posts := d.waitPosted(kit.Patience, posted)
	decisions := d.waitDropped(kit.Patience, refused)
	memory := peakMemory(t, d.workers[0])
	met := posts.missing+decisions.missing == 0 && posts.p99() < bar && decisions.p99() < bar && memory < mostMemory
	judge(t, "2. "+fmt.Sprint(slow)+" events of a slow channel, "+name, met,
		fmt.Sprintf("p99 < %s, worker below %.0f MiB", bar, mostMemory),
		"other channels %s; dropped %s; worker %.0f MiB", posts, decisions, memory)
}

// publishRefused publishes 50 events under a limit that admits one.
func (d *deployment) publishRefused() (ids []string) {
	d.Helper()
	for range 50 {
		id := fmt.Sprintf("refused-%d", d.count())
		d.publish("refused", id)
		ids = append(ids, id)
	}
	d.flush()
	return ids
}

// count returns the number of published events.
func (d *deployment) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.published)
}

// waitDropped waits up to limit until all but one of the events are dropped and returns the latencies of the
// drops. The limit of the category admits one event, which waits for the slow channel.
func (d *deployment) waitDropped(limit time.Duration, ids []string) latencies {
	d.Helper()
	dropped := map[string]time.Time{}
	kit.Within(limit, func() bool {
		clear(dropped)
		for id, l := range d.settled() {
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
			admitted++ // waits for the slow channel
		}
	}
	return d.since(decided, dropped)
}
