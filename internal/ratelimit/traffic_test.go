package ratelimit_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

var scriptStatistics = regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`)

func atoi(t *testing.T, digits string) int {
	t.Helper()
	number, err := strconv.Atoi(digits)
	kit.Check(t, err)
	return number
}

// hot is how many events of the category "hot" are allowed in traffic, which asks for more; nothing else is
// scarce.
const hot = 60

var trafficRules = kit.Rules("1000000/30m", "1000000/30m", "hot="+strconv.Itoa(hot)+"/30m")

// traffic is what some replicas do to a store that is being worked on: each asks without a pause, for new
// events and again for old ones, and asks again for what could not be decided, as the worker does. Every
// answer is held against what that replica was told before.
type traffic struct {
	t        *testing.T
	calls    []atomic.Int64 // that came back, with an answer or an error, by replica
	errors   atomic.Int64
	hot      atomic.Int64 // admitted in it
	refused  atomic.Int64 // in it
	admitted atomic.Int64 // slots taken overall, less what was given back
	mu       sync.Mutex
	seen     map[string]int // errors, by their first word
	stop     context.CancelFunc
	done     sync.WaitGroup
}

// startTraffic starts replicas of the store at url, under trafficRules.
func startTraffic(t *testing.T, url string, replicas int) *traffic {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := &traffic{t: t, calls: make([]atomic.Int64, replicas), seen: map[string]int{}, stop: stop}
	t.Cleanup(func() { stop(); r.done.Wait() })
	for i := range replicas {
		limiter, err := ratelimit.New(kit.OpenRedis(t, url), "n", trafficRules, day)
		kit.Check(t, err)
		r.done.Go(func() { r.replica(ctx, i, limiter) })
	}
	return r
}

// replica works until it is stopped; what it has begun it finishes.
func (r *traffic) replica(ctx context.Context, number int, limiter *ratelimit.Limiter) {
	for round := 0; ctx.Err() == nil; round++ {
		name := fmt.Sprintf("r%d-%d", number, round)
		sent, flying, refunded := event(name+"-sent", "cold"), costing(event(name+"-flying", "cold"), 2), costing(event(name+"-refunded", "cold"), 3)
		scarce := event(name+"-hot", "hot")
		batch := []ratelimit.Request{sent, flying, refunded, scarce, event(name+"-fresh", "fresh "+name)}

		first := r.admit(number, limiter, batch)
		if first == nil {
			return
		}
		for i, decision := range first {
			if batch[i].Category != "hot" && decision.Verdict != ratelimit.Admitted {
				r.t.Errorf("%s: %+v, expected that it is admitted", batch[i].ID, decision)
			}
		}
		if first[3].Verdict == ratelimit.Admitted {
			r.hot.Add(1)
			r.admitted.Add(1)
		} else {
			r.refused.Add(1)
			if first[3].Verdict != ratelimit.Category || first[3].Used != hot {
				r.t.Errorf("%s: %+v, expected a refusal with %d used", scarce.ID, first[3], hot)
			}
		}
		r.again(number, "sent", func(ctx context.Context) error { return limiter.Sent(ctx, sent) })
		r.again(number, "refund", func(ctx context.Context) error { _, err := limiter.Refund(ctx, refunded, ""); return err })
		r.admitted.Add(4) // sent, flying and fresh

		second := r.admit(number, limiter, []ratelimit.Request{sent, flying, by("another message", flying), scarce})
		want := []ratelimit.Verdict{ratelimit.Duplicate, ratelimit.Admitted, ratelimit.Duplicate, first[3].Verdict}
		if second == nil {
			return
		}
		for i, decision := range second {
			if decision.Verdict != want[i] {
				r.t.Errorf("%s, asked again (%d): %+v, expected outcome %d", name, i, decision, want[i])
			}
		}
	}
}

// admit gives no decisions when there is no point in going on.
func (r *traffic) admit(number int, limiter *ratelimit.Limiter, batch []ratelimit.Request) (decisions []ratelimit.Decision) {
	r.again(number, "admit", func(ctx context.Context) (err error) {
		decisions, err = limiter.Admit(ctx, batch)
		return err
	})
	return decisions
}

var code = regexp.MustCompile(`\b[A-Z]{5,}\b|timeout|EOF|refused|reset`)

// again makes a call until it has no error.
func (r *traffic) again(number int, what string, call func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		err := call(ctx)
		r.calls[number].Add(1)
		if err == nil {
			return
		}
		r.errors.Add(1)
		r.mu.Lock()
		r.seen[code.FindString(err.Error())]++
		r.mu.Unlock()
		if ctx.Err() != nil {
			r.t.Errorf("%s: %v", what, err)
		}
		if r.t.Failed() {
			return
		}
	}
}

// more waits until each replica has had so many more calls back.
func (r *traffic) more(calls int64) {
	r.t.Helper()
	for i := range r.calls {
		from := r.calls[i].Load()
		what := fmt.Sprintf("replica %d has had %d calls back after the first %d", i, calls, from)
		kit.Eventually(r.t, what, func() bool { return r.calls[i].Load() >= from+calls })
	}
}

// end waits until something was refused, stops the replicas and compares the answers that they got with what
// the store has charged. The store's client is that of the server which has the keys now.
func (r *traffic) end(s *store) {
	r.t.Helper()
	kit.Eventually(r.t, "an event has been refused", func() bool { return r.refused.Load() > 0 || r.t.Failed() })
	r.stop()
	r.done.Wait()
	total := int64(0)
	for i := range r.calls {
		total += r.calls[i].Load()
	}
	r.t.Logf("%d calls, %d of them errors %v; %d slots charged, %d of them hot", total, r.errors.Load(), r.seen, r.admitted.Load(), r.hot.Load())
	if got := r.hot.Load(); got != hot {
		r.t.Errorf("%d hot events were admitted, expected %d", got, hot)
	}
	for key, want := range map[string]int64{"{n}:category:hot": hot, "{n}:global": r.admitted.Load()} {
		if got := s.ZCard(r.t.Context(), key).Val(); got != want {
			r.t.Errorf("%s has %d slots taken, expected %d", key, got, want)
		}
	}
}
