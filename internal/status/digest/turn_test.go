package digest

import (
	"fmt"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// paced makes the digest's channel one of this pace, and makes as many posts to it.
func (w *world) paced(pace string, posts int) *ratelimit.Limiter {
	w.t.Helper()
	rules := kit.Rules("100/30m", "10/30m", "")
	var err error
	rules.Pace, err = ratelimit.ParsePace(pace)
	kit.Check(w.t, err)
	limiter, err := ratelimit.New(w.redis, "n", rules, time.Hour)
	kit.Check(w.t, err)
	w.config.Permits = limiter
	for i := range posts {
		name := fmt.Sprint("event", i)
		permit, err := limiter.Begin(w.t.Context(), w.event(name))
		if err != nil || permit.Status != ratelimit.Granted {
			w.t.Fatalf("%+v, %v", permit, err)
		}
		_, _, err = limiter.Answered(w.t.Context(), ratelimit.Answer{Channel: w.config.Channel, Name: name, Posted: true})
		kit.Check(w.t, err)
	}
	return limiter
}

func (w *world) event(name string) ratelimit.Post {
	return ratelimit.Post{Channel: w.config.Channel, Name: name, Longest: time.Second}
}

// The digest waits for its channel's pace without the lease, and is the first that has a turn then, before
// events.
func TestTheDigestTakesTheNextTurnOfItsChannel(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		limiter := w.paced("2/30m", 2)
		w.drop("category", "errors", 5)
		w.old()
		// and all replicas one turn together
		for _, d := range []*Digest{w.digest(false, nil), w.digest(false, nil)} {
			if wait := d.turn(t.Context()); wait != longestPoll || w.slack.Requests() != 0 {
				t.Errorf("waits %s, %d requests; expected to wait for the pace", wait, w.slack.Requests())
			}
		}
		if n := w.redis.Exists(t.Context(), w.keys.Lease(), w.keys.Posting()).Val(); n != 0 {
			t.Error("it has the lease while it waits")
		}
		entries := w.redis.ZCard(t.Context(), "{n}:pace:#ops").Val()
		if permit, err := limiter.Begin(t.Context(), w.event("e")); err != nil || permit.Status != ratelimit.Paced || entries != 3 {
			t.Errorf("%+v, %v, %d entries; expected one slot to be kept", permit, err, entries)
		}
	})
}
