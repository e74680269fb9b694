package ratelimit_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// What Slack takes in the storms of these tests: so many messages to a channel in any ten seconds.
const (
	slackTakes  = 12
	slackWindow = 10 * time.Second
	stormPosts  = 100
)

// TestNoStormIsRefused plays storms of 100 events for one channel, by three replicas with four posts in
// flight each, to a Slack that answers late, now and then by seconds, and counts a post at any moment before
// its answer.
func TestNoStormIsRefused(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) { playStorms(t, s, 0, 3) })
}

func TestNoFurtherStormIsRefused(t *testing.T) {
	kit.Long(t)
	eachStore(t, func(t *testing.T, s *store) { playStorms(t, s, 3, 30) })
}

// playStorms plays the storms of some seeds.
func playStorms(t *testing.T, s *store, first, end int) {
	t.Helper()
	var longest time.Duration
	for seed := first; seed < end; seed++ {
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
	t.Logf("%d storms, the longest %s", end-first, longest.Round(time.Second))
}

// storm is one of them, in simulated time.
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
	counted  []time.Duration // when Slack has taken a post
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

// next takes an event and asks until it may be posted.
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
		if w.now/slackWindow%3 == 0 { // now and then Slack is slow for ten seconds
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

// slack counts a post, or refuses it. The clock of a redis-server runs on while its store is aged, and
// Slack's with it.
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

// steps is what is to happen, the earliest first.
type steps []step

func (s steps) Len() int           { return len(s) }
func (s steps) Less(i, j int) bool { return s[i].at < s[j].at }
func (s steps) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *steps) Push(x any)        { *s = append(*s, x.(step)) }
func (s *steps) Pop() any {
	last := len(*s) - 1
	x := (*s)[last]
	*s = (*s)[:last]
	return x
}
