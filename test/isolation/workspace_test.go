package isolation

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// TestAWorkspaceLimitPausesAll: Slack limits the whole workspace, which its refusals do not show. When a
// second channel is refused and nothing was posted since the first, the others are not tried; after the pause
// one post is, alone.
func TestAWorkspaceLimitPausesAll(t *testing.T) {
	needsFull(t)
	t.Parallel()
	const replicas, concurrency, busy = 3, 4, 4 // busy: of the quiet channels; the last one stays quiet
	const pause = 10 * time.Second
	w := newWorld(t, settings{
		"SLACK_CHANNEL": "C0BUSIEST", "SLACK_ROUTES": quietRoutes(), "SLACK_PACE": pace,
		"LIMIT_GLOBAL": wide, "LIMIT_CATEGORY": wide, "SEND_CONCURRENCY": fmt.Sprint(concurrency),
	})
	w.startWorkers(replicas)
	text, mode := limit(t, 6, window)
	w.mode(devstack.Mode{WorkspaceLimit: mode.ChannelLimit, RetryAfter: pause})

	ids := w.publishTo(busy, "busy", 6)
	channels := map[string]bool{}
	kit.Eventually(t, "two channels are refused", func() bool {
		for _, r := range w.door.those(limited) {
			channels[r.channel] = true
		}
		return len(channels) >= 2
	})
	if !kit.Within(time.Second, w.workspacePaused) {
		t.Errorf("the workspace is not paused a second after posts to %d channels were refused", len(channels))
	}
	paused := time.Now().Add(200 * time.Millisecond) // what was permitted before is posted by then
	begun := w.door.those(limited)[0].at
	untouched := "quiet-after"
	w.publish(fmt.Sprintf("quiet-%d", quietChannels-1), untouched)
	end := begun.Add(pause)
	kit.Eventually(t, "somebody tries again", func() bool {
		return len(w.door.those(func(r request) bool { return r.at.After(end.Add(-50 * time.Millisecond)) })) > 0
	})
	refused := len(w.door.those(func(r request) bool { return limited(r) && r.at.Before(end) }))
	during := w.door.those(func(r request) bool {
		return r.at.After(paused) && r.at.Before(end.Add(-50*time.Millisecond))
	})
	judge(t, "7. workspace limit of "+text, refused <= replicas*concurrency && len(during) == 0,
		fmt.Sprintf("refused: at most the %d in flight; no request during the pause", replicas*concurrency),
		"%d refused, %d requests during the pause of %s", refused, len(during), pause)

	w.mode(devstack.Mode{})
	if left := w.waitPosted(kit.Patience, append(ids, untouched)); left.missing > 0 {
		t.Errorf("%d of %d events are not posted when the workspace takes posts again", left.missing, len(ids)+1)
	}
}

// publishTo publishes n events to each of the first quiet channels.
func (w *world) publishTo(channels int, name string, n int) (ids []string) {
	w.Helper()
	for i := range n {
		for c := range channels {
			id := fmt.Sprintf("%s-%d-%d", name, c, i)
			w.publish(fmt.Sprintf("quiet-%d", c), id)
			ids = append(ids, id)
		}
	}
	w.flush()
	return ids
}

// workspacePaused reports whether Redis has a pause of the whole workspace.
func (w *world) workspacePaused() bool {
	w.Helper()
	err := w.redis.ZScore(w.Context(), "{notifier}:pauses", "*").Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		w.Fatal(err)
	}
	return err == nil
}
