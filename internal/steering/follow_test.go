package steering_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"notifier/internal/ratelimit"
	"notifier/internal/steering"
	"notifier/test/kit"
	"notifier/test/redistest"
)

func TestAWorkerFollows(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	r.flush() // does nothing before Load
	kit.Check(t, r.Load(t.Context()))
	if r.muted("errors") {
		t.Error("muted from the start")
	}
	w.mute("errors.>", time.Hour)
	if limit := w.limit("global", "5/1m0s", time.Hour).Limit; limit != "5/1m" {
		t.Errorf("limit %s, expected its shortest form", limit)
	}
	w.limit("group/team-a", "6/1m", time.Hour)
	w.limit("category/errors.db", "7/1m", time.Hour)
	r.flush()
	if !r.muted("errors.db") || r.muted("errors") || r.muted("other") {
		t.Error("the mute is not followed")
	}
	now := r.limits.current()
	if now.Global.String() != "5/1m" || now.Groups["team-a"].String() != "6/1m" || now.Categories["errors.db"].String() != "7/1m" {
		t.Errorf("%+v", now)
	}
	for _, scope := range []ratelimit.Scope{{}, {Group: "team-a"}, {Category: "errors.db"}} {
		if left := now.Ends[scope].Sub(w.read().Now); left <= 50*time.Minute || left > time.Hour {
			t.Errorf("the limit of %+v ends in %s, expected an hour", scope, left)
		}
	}
	lines := r.log.FilterMessage("mute is in force").All()
	if len(lines) != 1 || lines[0].ContextMap()["by"] != "alice@ops" || lines[0].ContextMap()["reason"] != "because" {
		t.Errorf("%v", lines)
	}
	_, _, err := w.store.Clear(t.Context(), steering.Mute, "errors.>")
	kit.Check(t, err)
	_, _, err = w.store.Clear(t.Context(), steering.Limit, "global")
	kit.Check(t, err)
	r.flush()
	if r.muted("errors.db") || len(r.limits.current().Global) > 0 || len(r.limits.current().Groups) != 1 {
		t.Error("what was cleared is still in force")
	}
	if r.log.FilterMessage("mute is over").Len() != 1 || r.log.FilterMessage("temporary limit is over").Len() != 1 {
		t.Errorf("%v", r.log.All())
	}
}

// An order ends at its time by Redis's clock without a call, also while Redis is unavailable. Of two mutes
// the most specific one is named; when it ends, the other one holds without a gap.
func TestAnOrderEndsByItself(t *testing.T) {
	w := newWorld(t)
	until := w.mute("errors", time.Second).Until
	w.mute(">", time.Hour)
	w.limit("global", "5/1m", time.Second)
	r := w.replica()
	kit.Check(t, r.Load(t.Context()))
	if mute, _ := r.Muted("errors"); mute.Target != "errors" || len(r.limits.current().Global) == 0 {
		t.Errorf("muted by %q, limits %+v", mute.Target, r.limits.current())
	}
	gap := false
	kit.Eventually(t, "the first mute is over", func() bool {
		mute, muted := r.Muted("errors")
		gap = gap || !muted
		return muted && mute.Target == ">"
	})
	if gap {
		t.Error("for a moment nothing was muted")
	}
	if now := w.read().Now; now.Before(until) {
		t.Errorf("over %s too early", until.Sub(now))
	}
	kit.Eventually(t, "the limit is over, and the ends are logged", func() bool {
		return len(r.limits.current().Global) == 0 && r.log.FilterMessage("mute is over").Len() == 1 &&
			r.log.FilterMessage("temporary limit is over").Len() == 1
	})
}

// A version that no script has written is followed once, and not read again with each flush.
func TestAVersionThatIsNoneIsReadOnce(t *testing.T) {
	for _, version := range []string{"1.5", "99999999999999999999", "x"} {
		t.Run(version, func(t *testing.T) {
			w := newWorld(t)
			r := w.replica()
			kit.Check(t, r.Load(t.Context()))
			kit.Check(t, w.client.HSet(t.Context(), key, "version", version, "mute a..b", "junk").Err())
			for range 3 {
				r.flush()
			}
			if n := r.log.FilterMessage("mutes or limits are not valid, and are skipped").Len(); n != 1 {
				t.Errorf("%d lines, expected one", n)
			}
		})
	}
}

// A change is in force in two seconds, to which the test adds two for a busy machine, also after Redis was unavailable; an override ends in between.
func TestRunFollows(t *testing.T) {
	w := newWorld(t)
	proxy := redistest.StartProxy(t, w.server.Addr)
	store, err := steering.NewStore(kit.OpenRedis(t, "redis://"+proxy.Addr), "n")
	kit.Check(t, err)
	r := &replica{w: w, limits: &limits{}}
	r.Follower = steering.NewFollower(store, r.limits, zap.NewNop())
	t.Cleanup(r.Stop)
	kit.Check(t, r.Load(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	within := func(limit time.Duration, what string, holds func() bool) {
		t.Helper()
		if !kit.Within(limit, holds) {
			t.Errorf("after %s still not: %s", limit, what)
		}
	}
	w.mute("long", time.Hour)
	w.mute("short", 4*time.Second)
	w.limit("global", "5/1m", time.Hour)
	within(4*time.Second, "all are in force", func() bool {
		return r.muted("long") && r.muted("short") && len(r.limits.current().Global) > 0
	})
	proxy.Cut()
	away, stop := context.WithCancel(t.Context())
	stop()
	if err := steering.NewFollower(store, &limits{}, zap.NewNop()).Load(away); err == nil {
		t.Error("a new worker has read nothing, and reports no error")
	}
	_, _, err = w.store.Clear(t.Context(), steering.Mute, "long")
	kit.Check(t, err)
	within(10*time.Second, "the short mute is over", func() bool { return !r.muted("short") })
	if !r.muted("long") {
		t.Error("forgotten without Redis")
	}
	proxy.Heal()
	kit.Eventually(t, "it follows again", func() bool { return !r.muted("long") })
}

// slowHash is a client's hook that delays replies to HGETALL.
type slowHash struct {
	redis.Hook
	asked, release chan struct{}
}

func (h slowHash) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		if command.Name() == "hgetall" {
			close(h.asked)
			<-h.release
		}
		return next(ctx, command)
	}
}

func (slowHash) DialHook(next redis.DialHook) redis.DialHook { return next }

func (slowHash) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestASlowHashDoesNotStopThePipeline: a mute ends while the hash is read again, and events wait for neither.
func TestASlowHashDoesNotStopThePipeline(t *testing.T) {
	w := newWorld(t)
	client := w.server.ClientFor(t, "{n}")
	store, err := steering.NewStore(client, "n")
	kit.Check(t, err)
	f := steering.NewFollower(store, &limits{}, zap.NewNop())
	t.Cleanup(f.Stop)
	w.mute("errors", time.Second)
	kit.Check(t, f.Load(t.Context()))
	w.mute("deploys", time.Hour)
	slow := slowHash{asked: make(chan struct{}), release: make(chan struct{})}
	client.AddHook(slow)
	var polling sync.WaitGroup
	polling.Go(func() { f.Poll(t.Context()) })
	<-slow.asked
	ended := make(chan struct{})
	go func() {
		kit.Eventually(t, "the mute is over", func() bool {
			_, muted := f.Muted("errors")
			return !muted
		})
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("Muted waits for Redis")
	}
	close(slow.release)
	polling.Wait()
	<-ended
	if _, muted := f.Muted("deploys"); !muted {
		t.Error("the new mute is not followed")
	}
}
