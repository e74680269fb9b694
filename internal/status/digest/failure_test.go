package digest

import (
	"fmt"
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// doubted is how many drops may not have been reported, by the log.
func (w *world) doubted() (sum int64) {
	for _, line := range w.logged(doubtLine) {
		sum += line.ContextMap()["drops"].(int64)
	}
	return sum
}

// A failure that is none of doubt loses nothing and repeats nothing.
func TestSlackRefuses(t *testing.T) {
	for name, behaviour := range map[string]devstack.Behaviour{
		"unavailable":       {Status: 503},
		"cut before":        {Status: 500},
		"channel_not_found": {Code: "channel_not_found"},
		"revoked":           {Code: "token_revoked"},
		"429":               {RetryAfter: "1"},
	} {
		for _, webhook := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, webhook %t", name, webhook), func(t *testing.T) {
				eachStore(t, func(t *testing.T, w *world) {
					w.slack.Next(behaviour, behaviour)
					w.drop("category", "errors", 5)
					w.old()
					w.run(w.digest(webhook, nil), w.digest(webhook, nil))
					w.messages(1)
					w.idle()
					if texts := w.texts(); len(texts) != 1 || said(t, texts[0]) != 5 || w.slack.Requests() != 3 {
						t.Errorf("%d requests, %q", w.slack.Requests(), texts)
					}
					if n := w.doubted(); n != 0 {
						t.Errorf("%d drops are in doubt", n)
					}
				})
			})
		}
	}
}

// Slack's wait holds for all replicas and their events.
func TestA429PausesTheChannel(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		w.slack.Next(devstack.Behaviour{RetryAfter: "30"})
		w.drop("category", "errors", 5)
		w.old()
		d := w.digest(false, nil)
		d.turn(t.Context())
		if n := w.redis.HGet(t.Context(), w.keys.Pending(), "category 10/30m errors").Val(); n != "5" {
			t.Errorf("%s drops are pending, want 5", n)
		}
		pauses, err := w.limiter.Pauses(t.Context())
		if err != nil || len(pauses) != 1 || pauses[0].Channel != "#ops" || pauses[0].Left < 20*time.Second || pauses[0].Left > 30*time.Second {
			t.Errorf("%v, %v; expected a pause of its channel", pauses, err)
		}
		if wait := d.turn(t.Context()); wait < 20*time.Second || w.slack.Requests() != 1 {
			t.Errorf("waits %s, %d requests", wait, w.slack.Requests())
		}
		// The pause alone would hold it too.
		w.old()
		if wait := d.turn(t.Context()); wait < 20*time.Second || w.slack.Requests() != 1 {
			t.Errorf("waits %s, %d requests", wait, w.slack.Requests())
		}
	})
}

// A failing Slack is asked less and less, by all replicas together.
func TestBackoff(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		w.slack.Always(devstack.Behaviour{Status: 503})
		w.drop("category", "errors", 5)
		w.old()
		ds := []*Digest{w.digest(false, nil), w.digest(false, nil)}
		const first = 900 * time.Millisecond // nobody waits for it; the other one has to look before it is over
		ds[0].wait, ds[1].wait = first, first
		wait := time.Duration(0)
		for i := range 6 {
			if i > 0 {
				kit.Check(t, w.redis.HSet(t.Context(), w.keys.State(), "next", 0).Err())
			}
			next := ds[i%2].turn(t.Context())
			if want := min(first<<i, longestPoll); next != want {
				t.Errorf("after %d failures it waits %s, want %s; before it was %s", i+1, next, want, wait)
			}
			if wait := ds[(i+1)%2].turn(t.Context()); wait <= 0 || wait > next || w.slack.Requests() != i+1 {
				t.Errorf("the other one waits %s, %d requests, want %d", wait, w.slack.Requests(), i+1)
			}
			wait = next
		}
		for range 12 {
			_ = w.redis.HSet(t.Context(), w.keys.State(), "next", 0).Err()
			wait = ds[0].turn(t.Context())
		}
		if wait > longestPoll {
			t.Errorf("it looks again after %s", wait)
		}
	})
}

// A post in doubt is not posted again, and said to be in doubt. The next digest goes on with what comes.
func TestAPostInDoubt(t *testing.T) {
	for name, test := range map[string]struct {
		behaviour devstack.Behaviour
		arrived   int
	}{
		"accepted, and the answer lost": {devstack.Behaviour{ResetAfter: true}, 1},
		"lost":                          {devstack.Behaviour{ResetBefore: true}, 0},
		"no answer":                     {devstack.Behaviour{Hang: true}, 0},
		"internal_error":                {devstack.Behaviour{Code: "internal_error"}, 0},
	} {
		for _, webhook := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, webhook %t", name, webhook), func(t *testing.T) {
				eachStore(t, func(t *testing.T, w *world) {
					w.slack.Next(test.behaviour)
					w.drop("category", "errors", 5)
					w.old()
					w.run(w.digest(webhook, nil), w.digest(webhook, nil))
					w.idle()
					if n := w.doubted(); n != 5 {
						t.Errorf("%d drops are in doubt, want 5", n)
					}
					w.drop("category", "errors", 3)
					texts := w.messages(test.arrived + 1)
					w.idle()
					if last := texts[len(texts)-1]; len(texts) != test.arrived+1 || said(t, last) != 3 {
						t.Errorf("%q", texts)
					}
				})
			})
		}
	}
}

// An edit in doubt is made again, and what it reported is in the next one.
func TestAnEditInDoubt(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		w.run(w.digest(false, nil))
		w.drop("category", "errors", 5)
		w.messages(1)
		w.idle()
		w.slack.Next(devstack.Behaviour{ResetBefore: true})
		w.drop("category", "errors", 3)
		w.idle()
		if texts := w.texts(); len(texts) != 1 || said(t, texts[0]) != 8 || w.doubted() != 0 {
			t.Errorf("%q, %d in doubt", texts, w.doubted())
		}
		w.slack.Next(devstack.Behaviour{ResetBefore: true}, devstack.Behaviour{ResetBefore: true})
		w.drop("category", "errors", 1)
		w.idle()
		if texts := w.texts(); len(texts) != 1 || said(t, texts[0]) != 8 || w.doubted() != 1 {
			t.Errorf("%q, %d in doubt", texts, w.doubted())
		}
		w.drop("category", "errors", 1)
		w.idle()
		if texts := w.texts(); len(texts) != 1 || said(t, texts[0]) != 10 {
			t.Errorf("%q, want 10", texts)
		}
	})
}

// An edit that fails for certain is made again later, and nothing is lost.
func TestAnEditThatFails(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		w.run(w.digest(false, nil), w.digest(false, nil))
		w.drop("category", "errors", 5)
		w.messages(1)
		w.idle()
		w.slack.Next(devstack.Behaviour{Status: 503}, devstack.Behaviour{RetryAfter: "1"})
		w.drop("category", "errors", 3)
		w.idle()
		if texts := w.texts(); len(texts) != 1 || said(t, texts[0]) != 8 || w.doubted() != 0 {
			t.Errorf("%q, %d in doubt", texts, w.doubted())
		}
	})
}
