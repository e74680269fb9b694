package digest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// permits has something happen before and after each permit, and after an answer was recorded; nil: nothing.
type permits struct {
	*ratelimit.Limiter
	then     func()
	before   func()
	answered func()
}

func (p permits) Begin(ctx context.Context, post ratelimit.Post) (ratelimit.Permit, error) {
	call(p.before)
	permit, err := p.Limiter.Begin(ctx, post)
	call(p.then)
	return permit, err
}

func (p permits) Answered(ctx context.Context, answer ratelimit.Answer) (ratelimit.PauseScope, time.Duration, error) {
	scope, left, err := p.Limiter.Answered(ctx, answer)
	call(p.answered)
	return scope, left, err
}

func call(f func()) {
	if f != nil {
		f()
	}
}

// afterAPause lets a pause of the digest's channel be over, so that the next post there is a probe.
func (w *world) afterAPause(limiter *ratelimit.Limiter) {
	w.t.Helper()
	const refused = "refused"
	if permit, err := limiter.Begin(w.t.Context(), w.event(refused)); err != nil || permit.Wait > 0 {
		w.t.Fatalf("%+v, %v", permit, err)
	}
	answer := ratelimit.Answer{Channel: w.config.Channel, Name: refused, RetryAfter: time.Millisecond}
	scope, _, err := limiter.Answered(w.t.Context(), answer)
	if err != nil || scope == ratelimit.NoPause {
		w.t.Fatalf("%d, %v; expected a pause", scope, err)
	}
	kit.EventuallyNil(w.t, func() error {
		left, err := limiter.LongestPause(w.t.Context())
		if err == nil && left > 0 {
			err = fmt.Errorf("%s of the pause are left", left)
		}
		return err
	})
}

// expectNoProbe checks that nobody waits for the digest.
func (w *world) expectNoProbe(limiter *ratelimit.Limiter) {
	w.t.Helper()
	permit, err := limiter.Begin(w.t.Context(), w.event("next"))
	if err != nil || permit.Status != ratelimit.Granted {
		w.t.Errorf("the next event: %+v, %v; expected a permit", permit, err)
	}
}

// A permit that is the probe after a pause holds all replicas back until its end is reported, for as long as
// a post may take.
func TestAPermitThatIsNotUsedIsGivenBack(t *testing.T) {
	for name, change := range map[string]func(w *world, config *Config, limiter *ratelimit.Limiter){
		"the lease is lost": func(w *world, config *Config, _ *ratelimit.Limiter) {
			config.NextFree = func(ctx context.Context) (time.Duration, error) { // just before the post
				return 0, w.redis.Del(ctx, w.keys.Lease()).Err()
			}
		},
		"the lease cannot be read": func(w *world, config *Config, limiter *ratelimit.Limiter) {
			config.Lease = 2 * time.Second // so long it tries to record that
			config.Permits = permits{Limiter: limiter, then: func() {
				kit.Check(w.t, w.redis.Del(w.t.Context(), w.keys.Lease()).Err())
				kit.Check(w.t, w.redis.HSet(w.t.Context(), w.keys.Lease(), "a", "b").Err())
			}}
		},
		"the drops cannot be read": func(w *world, _ *Config, _ *ratelimit.Limiter) {
			kit.Check(w.t, w.redis.HSet(w.t.Context(), w.keys.Pending(), "foreign", "field").Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, w *world) {
				limiter := w.paced("100/30m", 1)
				w.afterAPause(limiter)
				w.drop("category", "errors", 5)
				w.old()
				w.digest(false, func(config *Config) { change(w, config, limiter) }).turn(t.Context())
				if n := w.slack.Requests(); n != 0 {
					t.Fatalf("%d requests, expected none", n)
				}
				w.expectNoProbe(limiter)
			})
		})
	}
}

// A replica that is slow to ask for its permit gets one for a post that another has made meanwhile. While the
// ID of the channel is unknown, all others would wait for the end of that post.
func TestAPermitForAPostThatAnotherHasMadeIsGivenBack(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		w.drop("category", "errors", 5)
		w.old()
		w.slack.Next(devstack.Behaviour{Status: 503})
		other := w.digest(false, nil)
		d := w.digest(false, func(config *Config) {
			config.Permits = permits{Limiter: w.limiter, before: func() {
				kit.Check(t, w.redis.Del(t.Context(), w.keys.Lease()).Err()) // it expires
				other.turn(t.Context())
			}}
		})
		d.turn(t.Context())
		if n := w.slack.Requests(); n != 1 {
			t.Fatalf("%d requests, expected that of the other one", n)
		}
		w.expectNoProbe(w.limiter)
	})
}

func TestAnEditThatIsRefusedByItsLimitIsNoPause(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		limiter := w.paced("100/30m", 1)
		d := w.digest(false, nil)
		w.drop("category", "errors", 5)
		w.old()
		d.turn(t.Context())
		w.messages(1)
		w.afterAPause(limiter)
		w.drop("category", "errors", 3)
		w.old()
		w.slack.Next(devstack.Behaviour{RetryAfter: "30"})
		d.turn(t.Context())
		if n := w.slack.Requests(); n != 2 {
			t.Fatalf("%d requests, expected the post and the edit", n)
		}
		w.expectNoProbe(limiter)
	})
}
