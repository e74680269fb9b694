package ratelimit_test

import (
	"context"
	"sync"
	"testing"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// Between a call and its answer a connection can break at any point. The client then makes the call a second
// time by itself, and the worker as often as it takes; neither can know whether the script has run.

// loose is a store that is asked through a proxy which breaks calls, with all scripts loaded.
func loose(t *testing.T) (*store, caller, *redistest.Proxy) {
	t.Helper()
	server := redistest.Start(t)
	s := onServer(t, server)
	proxy := redistest.StartProxy(t, s.Options().Addr)
	limiter, err := ratelimit.New(kit.OpenRedis(t, "redis://"+proxy.Addr), "n", kit.Rules("100/30m", "3/30m", ""), day)
	kit.Check(t, err)
	c := caller{Limiter: limiter, t: t}
	c.admits(events(2, "warm", "warm")...)
	c.sent(event("warm-1", "warm"))
	c.refund(event("warm-2", "warm"))
	s.FlushDB(t.Context())
	return s, c, proxy
}

// runs is how often the script runs when a call is broken once.
func runs(fault redistest.Fault) int {
	if fault == redistest.LoseRequest {
		return 1
	}
	return 2
}

// brokenOnce is a call that the client repeats by itself.
func brokenOnce(t *testing.T, proxy *redistest.Proxy, fault redistest.Fault, call func() error) {
	t.Helper()
	before := proxy.Scripts()
	proxy.Break(fault)
	if err := call(); err != nil {
		t.Fatalf("broken once: %v", err)
	}
	if got, want := proxy.Scripts()-before, runs(fault); got != want {
		t.Fatalf("broken once, the script ran %d times, expected %d", got, want)
	}
}

// brokenTwice is a call that fails and is made again by its caller.
func brokenTwice(t *testing.T, proxy *redistest.Proxy, fault redistest.Fault, call func() error) {
	t.Helper()
	before := proxy.Scripts()
	proxy.Break(fault, fault)
	if err := call(); err == nil {
		t.Fatal("broken twice, and there is no error")
	}
	if err := call(); err != nil {
		t.Fatalf("made again after an error: %v", err)
	}
	if got, want := proxy.Scripts()-before, 2*runs(fault)-1; got != want {
		t.Fatalf("broken twice and made again, the script ran %d times, expected %d", got, want)
	}
}

func TestRepeatedCallChargesOnce(t *testing.T) {
	t.Parallel()
	for name, fault := range redistest.Faults {
		batch := append(events(4, "e", "a"), costing(event("b", "b"), 2), by("another message", event("e-1", "a")))
		want := []ratelimit.Verdict{ratelimit.Admitted, ratelimit.Admitted, ratelimit.Admitted, ratelimit.Category, ratelimit.Admitted, ratelimit.Duplicate}

		for times, broken := range map[string]func(*testing.T, *redistest.Proxy, redistest.Fault, func() error){"once": brokenOnce, "twice": brokenTwice} {
			t.Run(name+" "+times, func(t *testing.T) {
				t.Parallel()
				s, limiter, proxy := loose(t)
				slots := func(when string, global, a, b int) {
					t.Helper()
					for key, want := range map[string]int{"{n}:global": global, "{n}:category:a": a, "{n}:category:b": b} {
						if got := s.count(t, key); got != want {
							t.Errorf("%s: %s has %d slots taken, expected %d", when, key, got, want)
						}
					}
				}

				var decisions []ratelimit.Decision
				broken(t, proxy, fault, func() (err error) {
					decisions, err = limiter.Admit(t.Context(), batch)
					if err != nil && decisions != nil {
						t.Errorf("decided %v beside the error %v", decisions, err)
					}
					return err
				})
				sameVerdicts(t, want, decisions)
				slots("admitted", 5, 3, 2)

				broken(t, proxy, fault, func() error { return limiter.Sent(t.Context(), batch[0]) })
				slots("sent", 5, 3, 2)
				if n := s.HLen(t.Context(), "{n}:inflight").Val(); n != 3 {
					t.Errorf("%d in flight, expected 3", n)
				}

				broken(t, proxy, fault, func() error { _, err := limiter.Refund(t.Context(), batch[4], ""); return err })
				slots("refunded", 3, 3, 0)
				if limiter.refund(batch[4]) {
					t.Error("refunded twice")
				}
				limiter.duplicates(batch[0])
				limiter.admits(batch[1], batch[2], batch[4])
				slots("in the end", 5, 3, 2)
			})
		}
	}
}

// A server that stalls has what it was asked in its sockets, and runs it when it goes on, after all callers
// have given up.
func TestStalledServerChargesOnce(t *testing.T) {
	t.Parallel()
	s := onProcess(t)
	replicas := make([]caller, 3)
	for i := range replicas {
		replicas[i] = s.limiter(t, kit.Rules("100/30m", "3/30m", ""), day)
		replicas[i].admits(event("warm", "warm")) // it has a connection now
	}
	s.FlushDB(t.Context())
	kit.Check(t, s.ConfigResetStat(t.Context()).Err())

	batch := events(5, "e", "a")
	s.server.Freeze(t)
	var asking sync.WaitGroup
	for _, replica := range replicas {
		asking.Go(func() {
			if decisions, err := replica.Admit(t.Context(), batch); err == nil || decisions != nil {
				t.Errorf("with the server stalled: %v, %v", decisions, err)
			}
		})
	}
	asking.Wait()
	s.server.Thaw(t)
	kit.Eventually(t, "the script has run for each call that was made while the server stalled", func() bool {
		return scriptCalls(t, s) >= len(replicas)
	})
	s.charged(t, 3)
	want := []ratelimit.Verdict{ratelimit.Admitted, ratelimit.Admitted, ratelimit.Admitted, ratelimit.Category, ratelimit.Category}
	for _, replica := range replicas {
		sameVerdicts(t, want, replica.admit(batch...))
	}
	s.charged(t, 3)
}

// scriptCalls is how often EVALSHA and EVAL have run since the statistics were reset.
func scriptCalls(t *testing.T, s *store) int {
	t.Helper()
	info, err := s.Info(context.WithoutCancel(t.Context()), "commandstats").Result()
	kit.Check(t, err)
	calls := 0
	for _, found := range scriptStatistics.FindAllStringSubmatch(info, -1) {
		calls += atoi(t, found[1])
	}
	return calls
}
