package ratelimit_test

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// A connection can break at any point between a request and its reply. The client then repeats the call once,
// and the worker repeats it until it gets a reply. Neither can know whether the script has run.

// loose returns a store, a caller that reaches it through a proxy, and the proxy, which can break calls. The
// scripts are loaded, so each call is one EVALSHA.
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

// runs returns the number of times that the script runs if its call is broken once.
func runs(fault redistest.Fault) int {
	if fault == redistest.LoseRequest {
		return 1
	}
	return 2
}

// brokenOnce breaks a call once, so the client repeats it and the caller sees no error.
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

// brokenTwice breaks a call twice, so it fails and the caller repeats it.
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

// A stalled server keeps requests in its sockets and runs them when it resumes, after all callers gave up.
func TestStalledServerChargesOnce(t *testing.T) {
	t.Parallel()
	s := onProcess(t)
	replicas := make([]caller, 3)
	for i := range replicas {
		replicas[i] = s.limiter(t, kit.Rules("100/30m", "3/30m", ""), day)
		replicas[i].admits(event("warm", "warm")) // opens a connection
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

// scriptCalls counts the EVALSHA and EVAL calls since the statistics were reset.
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

// In these storms of stormPosts events, Slack accepts slackTakes messages to a channel in any slackWindow.
const (
	slackTakes  = 12
	slackWindow = 10 * time.Second
	stormPosts  = 100
)

// TestNoStormIsRefused plays storms of 100 events for one channel. Three workers have four posts in flight
// each. Slack takes 0.1 to 0.4 s for a response, ten times that in slow phases, and may count the post at any
// moment in the second half of that time.
func TestNoStormIsRefused(t *testing.T) {
	eachStore(t, playStorms)
}

func playStorms(t *testing.T, s *store) {
	t.Helper()
	var longest time.Duration
	for seed := range 3 {
		w := &storm{t: t, s: s, started: time.Now(), random: rand.New(rand.NewPCG(uint64(seed), 1)), channel: fmt.Sprintf("C%07d", seed)}
		for range 3 {
			w.replicas = append(w.replicas, s.paced(t, "10/10s"))
		}
		w.run()
		if w.refused > 0 || len(w.counted) != stormPosts {
			t.Errorf("storm %d: %d posts were refused, %d taken", seed, w.refused, len(w.counted))
		}
		longest = max(longest, w.now)
	}
	if longest > 110*time.Second {
		t.Errorf("a storm took %s, expected about 95s", longest)
	}
	t.Logf("the longest storm took %s", longest.Round(time.Second))
}

// storm is one storm, in simulated time.
type storm struct {
	t        *testing.T
	s        *store
	random   *rand.Rand
	channel  string
	replicas []caller
	steps    steps
	now      time.Duration
	started  time.Time
	begun    int
	counted  []time.Duration // times at which Slack accepted a post
	refused  int
}

func (w *storm) run() {
	for i := range 4 * len(w.replicas) {
		w.at(time.Duration(w.random.IntN(1000))*time.Millisecond, func() { w.next(w.replicas[i%len(w.replicas)]) })
	}
	for w.steps.Len() > 0 {
		next := heap.Pop(&w.steps).(step)
		w.s.advance(w.t, next.at-w.now)
		w.now = next.at
		next.do()
	}
}

func (w *storm) at(at time.Duration, do func()) { heap.Push(&w.steps, step{at, do}) }

// next takes an event and requests permits until it may be posted.
func (w *storm) next(c caller) {
	if w.begun == stormPosts {
		return
	}
	w.begun++
	w.ask(c, fmt.Sprint("p", w.begun))
}

func (w *storm) ask(c caller, name string) {
	permit := c.ask(ratelimit.Post{Channel: w.channel, Name: name, Longest: 12 * time.Second})
	switch permit.Status {
	case ratelimit.Granted:
		latency := time.Duration(100+w.random.IntN(300)) * time.Millisecond
		if w.now/slackWindow%3 == 0 { // slow for ten of thirty seconds
			latency *= 10
		}
		w.at(w.now+latency/2+time.Duration(w.random.Float64()*float64(latency/2)), w.slack)
		w.at(w.now+latency, func() {
			c.answer(ratelimit.Answer{Channel: w.channel, Name: name}, ratelimit.NoPause)
			w.next(c)
		})
	case ratelimit.Paced:
		w.at(w.now+permit.Wait, func() { w.ask(c, name) })
	default:
		w.t.Fatalf("%+v", permit)
	}
}

// slack counts or refuses a post. The clock of a redis-server runs in addition to the simulated time, so
// Slack's does too.
func (w *storm) slack() {
	recent, now := 0, w.now
	if w.s.server != nil {
		now += time.Since(w.started)
	}
	for _, at := range w.counted {
		if at > now-slackWindow {
			recent++
		}
	}
	if recent >= slackTakes {
		w.refused++
		return
	}
	w.counted = append(w.counted, now)
}

type step struct {
	at time.Duration
	do func()
}

// steps is a heap of future steps, the earliest first.
type steps []step

func (s steps) Len() int { return len(s) }

func (s steps) Less(i, j int) bool { return s[i].at < s[j].at }

func (s steps) Swap(i, j int) { s[i], s[j] = s[j], s[i] }

func (s *steps) Push(x any) { *s = append(*s, x.(step)) }

func (s *steps) Pop() any {
	last := len(*s) - 1
	x := (*s)[last]
	*s = (*s)[:last]
	return x
}
