package post

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"notifier/internal/consume/availability"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/slackout"
	"notifier/internal/steering"
)

var notSlacks = &slackout.Error{
	Class: slackout.Ambiguous, Code: "invalid_response", Explanation: "chat.example replied 204 with an empty body",
}

// made returns the number of posts so far.
func (w *world) made() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, posts := range w.posts {
		n += posts
	}
	return n
}

// Each post may be a copy of a message somewhere. So nothing is posted after two responses that are not
// Slack's, but for a try after a minute, two minutes and so on, up to an hour.
func TestResponsesThatAreNotSlacksStopPosting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails error = notSlacks
		w := newWorld(t, func(event.Event) error { return fails })
		w.publishMany("errors", 10)
		at := map[time.Duration]int{} // posts until then
		for _, after := range []time.Duration{30 * time.Second, 90 * time.Second, 6 * time.Minute, 12 * time.Hour} {
			time.Sleep(after - time.Since(w.began))
			at[after] = w.made()
		}
		want := fmt.Sprint(map[time.Duration]int{
			30 * time.Second: 2, 90 * time.Second: 3, 6 * time.Minute: 4, 12 * time.Hour: 18,
		})
		if got := fmt.Sprint(at); got != want {
			t.Errorf("posts made %s, expected %s", got, want)
		}
		waits := w.settings.Tracker.Waits(availability.Credentials)
		if len(waits) != 1 || !strings.HasPrefix(waits[0].Reason, "replies do not come from Slack: next try at ") ||
			!strings.HasSuffix(waits[0].Reason, "Z; chat.example replied 204 with an empty body") {
			t.Errorf("waits %+v, expected the next try, what came back, and from where", waits)
		}
		w.change(func() { fails = nil })
		time.Sleep(time.Hour + time.Minute)
		if sent, waits := w.count(outcome.Sent), w.settings.Tracker.Waits(); sent != 10 || len(waits) > 0 {
			t.Errorf("%d events are sent after the repair, waits %+v; expected 10 and none", sent, waits)
		}
		// After a success the count begins again.
		w.change(func() { fails = notSlacks })
		before := w.made()
		w.publishMany("again", 2)
		time.Sleep(30 * time.Second)
		if n := w.made() - before; n != 2 {
			t.Errorf("%d posts, expected 2 before a pause", n)
		}
		w.change(func() { fails = nil })
		time.Sleep(2 * time.Minute)
		if sent := w.count(outcome.Sent); sent != 12 {
			t.Errorf("%d events are sent, expected that the pause lasts a minute", sent)
		}
	})
}

// A proxy that answers one event with a page of its own does not stop the others for long: they go first
// after the pause, and each success ends the count.
func TestOnePageOfAProxyStopsNothingForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(ev event.Event) error {
			if ev.Category == "bad" {
				return notSlacks
			}
			return nil
		})
		w.publish("bad", "bad")
		time.Sleep(10 * time.Second)
		const good = 120 // in ten minutes
		for i := range good {
			w.publish("good", fmt.Sprint("good", i))
			time.Sleep(5 * time.Second)
		}
		time.Sleep(5 * time.Minute)
		for i := range good {
			id := fmt.Sprint("good", i)
			if end, took := w.end(id); end != outcome.Sent || took > firstForeignPause+15*time.Second {
				t.Errorf("%s ended as %q after %s, expected sent within a pause", id, end, took)
			}
		}
		if end, _ := w.end("bad"); end != outcome.Dead {
			t.Errorf("the other ended as %q, expected dead", end)
		}
	})
}

// allMuted mutes every category once it is true.
type allMuted struct{ atomic.Bool }

func (m *allMuted) Load(context.Context) error { return nil }
func (m *allMuted) Muted(string) (_ *steering.Order, on bool) {
	return &steering.Order{}, m.Bool.Load()
}

// Without events there is no next try, so nothing may wait for it. A token that Slack refuses is another matter:
// it stays refused.
func TestStopEndsWithItsEvents(t *testing.T) {
	for name, test := range map[string]struct {
		fails error
		waits int
	}{
		"not Slack's":         {notSlacks, 0},
		"credentials refused": {&slackout.Error{Class: slackout.Credentials, Code: "token_revoked", Workspace: true}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			fails := notSlacks
			w := newWorld(t, func(event.Event) error { return fails })
			var muted allMuted
			w.settings.Decider.Mutes = &muted
			w.publishMany("errors", 3)
			time.Sleep(6 * time.Minute)
			w.change(func() { fails = test.fails.(*slackout.Error) })
			time.Sleep(time.Hour)
			w.ForgetIdle()
			if waits := w.settings.Tracker.Waits(availability.Credentials); len(waits) != 1 {
				t.Errorf("%s: waits %+v while events wait, expected one", name, waits)
			}
			muted.Store(true)
			time.Sleep(2 * time.Hour)
			w.ForgetIdle()
			if waits := w.settings.Tracker.Waits(); w.count(outcome.Dropped) != 3 || len(waits) != test.waits {
				t.Errorf("%s: %d events are muted, waits %+v; expected 3 and %d", name, w.count(outcome.Dropped), waits, test.waits)
			}
			w.change(func() { fails = notSlacks })
			muted.Store(false)
			before := w.made()
			w.publishMany("again", 3)
			time.Sleep(30 * time.Second)
			if n := w.made() - before; test.waits == 0 && n != 2 {
				t.Errorf("%s: %d posts, expected 2 before a pause", name, n)
			}
		})
	}
}

// Bare 500s may come from a brown-out of Slack, so they stop nothing.
func TestServerErrorsAreNoForeignResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		serverError := &slackout.Error{Class: slackout.Ambiguous, Code: "http_500"}
		w := newWorld(t, func(event.Event) error { return serverError })
		w.publishMany("errors", 10)
		time.Sleep(10 * time.Minute)
		if n := w.made(); n < 50 {
			t.Errorf("%d posts in ten minutes, expected one every few seconds", n)
		}
	})
}

// Posts of several channels that were under way together count as one failure, so the pause does not
// multiply.
func TestForeignResponsesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f foreign
		began := time.Now()
		time.Sleep(time.Second)
		for i, want := range []time.Duration{0, time.Minute, time.Minute, time.Minute} {
			if pause := f.note(began); pause != want {
				t.Errorf("response %d: a pause of %s, expected %s", i, pause, want)
			}
		}
		time.Sleep(30 * time.Second)
		if pause := f.note(began); pause != 30*time.Second {
			t.Errorf("a late one: a pause of %s, expected what is left", pause)
		}
		time.Sleep(30 * time.Second)
		if pause := f.note(time.Now()); pause != 2*time.Minute {
			t.Errorf("the probe: a pause of %s, expected 2m", pause)
		}
		f.forget()
		if pause := f.note(time.Now()); pause != 0 {
			t.Errorf("after a success: a pause of %s, expected none", pause)
		}
	})
}
