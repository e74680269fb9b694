package post

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/decide"
	"notifier/internal/consume/feed"
	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
)

// world is a Sender between a limiter that admits everything, at the default pace, and a Slack that fails as
// told. It runs within synctest, so hours take moments.
type world struct {
	*Sender
	began  time.Time
	chance *rand.Rand
	fails  func(event.Event) error // of a post; nil accepts it

	mu    sync.Mutex
	pace  []time.Time // the last posts, counted in a pace of 10/10s
	posts map[string]int
	ended map[string]result.Result
	took  map[string]time.Duration // until it ended
}

// newWorld starts a Sender for one channel, which ends with the test.
func newWorld(t *testing.T, fails func(event.Event) error) *world {
	w := &world{
		began: time.Now(), chance: rand.New(rand.NewPCG(1, 2)), fails: fails,
		posts: map[string]int{}, ended: map[string]result.Result{}, took: map[string]time.Duration{},
	}
	w.Sender = New(Settings{
		Decider: &decide.Decider{Limiter: w, Tracker: quiet()}, Limiter: w, Slack: w, Letters: w, Settle: w.settle,
		Concurrency: 8, PostTimeout: 10 * time.Second, Channels: []string{"#alerts"},
		Capacity: 4096, Budget: 1 << 30, WorkerName: "w", Tracker: quiet(), Log: zap.NewNop(),
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx, ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return w
}

// change changes what a function given to newWorld reads.
func (w *world) change(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

// publish adds an admitted event with this text as its id.
func (w *world) publish(category, text string) {
	r := result.Result{
		Event:    event.Event{ID: text, Category: category, Published: time.Now()},
		Delivery: &feed.Delivery{Message: event.Message{}, Bytes: 1},
	}
	w.Add(decide.Job{Result: r, Request: decide.RequestOf(&r), Admitted: time.Now()})
}

// publishMany adds n events of a category, named after it.
func (w *world) publishMany(category string, n int) {
	for i := range n {
		w.publish(category, fmt.Sprint(category, i))
	}
}

func (w *world) Channel(event.Event) string { return "#alerts" }

func (w *world) Post(_ context.Context, ev event.Event) (slackout.Receipt, error) {
	time.Sleep(100 * time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.posts[ev.ID]++
	return slackout.Receipt{}, w.fails(ev)
}

func (w *world) Find(context.Context, event.Event) (slackout.Receipt, bool, error) {
	return slackout.Receipt{}, false, nil
}

func (w *world) Begin(context.Context, ratelimit.Post) (ratelimit.Permit, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := len(w.pace) - 10; last >= 0 {
		if wait := time.Until(w.pace[last].Add(10 * time.Second)); wait > 0 {
			return ratelimit.Permit{Status: ratelimit.Paced, Wait: wait}, nil
		}
	}
	w.pace = append(w.pace, time.Now())
	return ratelimit.Permit{Status: ratelimit.Granted}, nil
}

func (w *world) Answered(context.Context, ratelimit.Answer) (none ratelimit.PauseScope, _ time.Duration, _ error) {
	return none, 0, nil
}

func (w *world) Admit(_ context.Context, batch []ratelimit.Request) ([]ratelimit.Decision, error) {
	decisions := make([]ratelimit.Decision, len(batch))
	for i := range decisions {
		decisions[i].Verdict = ratelimit.Admitted
	}
	return decisions, nil
}

func (w *world) Sent(context.Context, ratelimit.Request) error                    { return nil }
func (w *world) Refund(context.Context, ratelimit.Request, string) (bool, error)  { return true, nil }
func (w *world) Forfeit(context.Context, ratelimit.Request, string) (bool, error) { return true, nil }
func (w *world) WasSent(context.Context, ratelimit.Request) (bool, error)         { return false, nil }
func (w *world) StandsStill() error                                               { return nil }
func (w *world) Evicts() error                                                    { return nil }
func (w *world) InFlight(context.Context, ratelimit.Request) (r ratelimit.InFlight, found bool, err error) {
	return r, false, nil
}

func (w *world) Keep(dead result.Result, _ func(context.Context) error) {
	_ = w.settle(context.Background(), []*result.Result{&dead})
}

func (w *world) settle(_ context.Context, batch []*result.Result) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range batch {
		w.ended[r.Event.ID], w.took[r.Event.ID] = *r, time.Since(r.Event.Published)
	}
	return nil
}

// end returns the outcome of an event, empty until then, and how long it took.
func (w *world) end(id string) (outcome string, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended[id].Outcome, w.took[id]
}

// count counts the events that ended so.
func (w *world) count(outcome string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.ended {
		if r.Outcome == outcome {
			n++
		}
	}
	return n
}

var internalError = &slackout.Error{Class: slackout.Ambiguous, Code: "internal_error"}

// failBad fails every event of the category "bad".
func failBad(ev event.Event) error {
	if strings.HasPrefix(ev.Category, "bad") {
		return internalError
	}
	return nil
}

// A good event does not wait for the retries of failing ones, nor for more than a moment of their first
// tries.
func TestFailingEventsDoNotHoldUpTheirChannel(t *testing.T) {
	for _, failing := range []int{10, 30} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, failBad)
			w.publishMany("bad", failing)
			w.publish("good", "first")
			time.Sleep(5 * time.Minute)
			if end, took := w.end("first"); end != outcome.Sent || took > 3*time.Second {
				t.Errorf("%d failing: the good event ended as %q after %s, expected sent within 3s", failing, end, took)
			}
			// Nothing was taken for minutes, so the channel may have failed, and is tried every few seconds.
			w.publish("good", "later")
			time.Sleep(5 * time.Minute)
			if end, took := w.end("later"); end != outcome.Sent || took > laneBackoff.MaxUnexplained+2*time.Second {
				t.Errorf("%d failing: a later one ended as %q after %s, expected sent within 7s", failing, end, took)
			}
		})
	}
}

// Events of the failing category itself are posted, too, and before the failing ones are tried again.
func TestFailingEventsDoNotHoldUpTheirCategory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(ev event.Event) error {
			if strings.HasPrefix(ev.ID, "bad") {
				return internalError
			}
			return nil
		})
		w.publishMany("bad", 10)
		w.publish("bad", "good")
		w.publish("bad", "next")
		time.Sleep(2 * time.Minute)
		end, took := w.end("good")
		if _, next := w.end("next"); end != outcome.Sent || took > time.Minute || next < took {
			t.Errorf("it ended as %q after %s, the next one after %s; expected sent within a minute, and in order",
				end, took, next)
		}
	})
}

// Several poisoned events do not pass for a brown-out. The channel counts as working as long as it takes
// others.
func TestPoisonedEventsDoNotProtectEachOther(t *testing.T) {
	for _, failing := range []int{3, 10, 30} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, failBad)
			w.publishMany("bad", failing)
			const good = 72 // every 10 s for 12 minutes
			for i := range good {
				w.publish("good", fmt.Sprint("good", i))
				time.Sleep(5 * time.Second)
				if waits := w.settings.Tracker.Waits(availability.Slack); len(waits) > 0 {
					t.Errorf("%d failing: %v while good events pass", failing, waits)
				}
				if i%6 == 0 {
					w.publish("bad", fmt.Sprint("another bad", i))
				}
				time.Sleep(5 * time.Second)
			}
			if sent := w.count(outcome.Sent); sent != good {
				t.Errorf("%d failing: %d good events are sent, expected %d", failing, sent, good)
			}
			for i := range failing {
				id := fmt.Sprint("bad", i)
				if end, _ := w.end(id); end != outcome.Dead {
					t.Errorf("%d failing: %s is not dead after %d posts", failing, id, w.posts[id])
				}
			}
		})
	}
}

// No event may die of a brown-out, which fails posts regardless of their content, nor of failures after an
// outage.
func TestBrownOutKillsNoEvent(t *testing.T) {
	for name, phases := range map[string][]struct {
		share  float64 // of posts that fail
		length time.Duration
	}{
		"60 % for a minute":                {{.6, time.Minute}},
		"90 % for ten minutes":             {{.9, 10 * time.Minute}},
		"an outage, then 20 % for a while": {{1, 10 * time.Minute}, {.2, 3 * time.Minute}},
	} {
		for _, categories := range []int{1, 8} {
			synctest.Test(t, func(t *testing.T) {
				share := 0.0
				var w *world
				w = newWorld(t, func(event.Event) error {
					if w.chance.Float64() < share {
						return internalError
					}
					return nil
				})
				published := 0
				publish := func(d time.Duration) {
					for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(3 * time.Second) {
						w.publish(fmt.Sprint("c", published%categories), fmt.Sprint("e", published))
						published++
					}
				}
				publish(time.Minute)
				for _, phase := range phases {
					w.change(func() { share = phase.share })
					publish(phase.length)
				}
				w.change(func() { share = 0 })
				time.Sleep(30 * time.Minute)
				if sent, dead := w.count(outcome.Sent), w.count(outcome.Dead); sent != published || dead > 0 {
					t.Errorf("%s, %d categories: %d of %d events are sent, %d dead; expected that all are sent",
						name, categories, sent, published, dead)
				}
			})
		}
	}
}
