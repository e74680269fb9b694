package letters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/feed"
	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/outcome"
)

// boxFixture is a letterbox with a fake dead-letter stream.
type boxFixture struct {
	*Box
	finish    func()
	mu        sync.Mutex            // guards the fields below
	refuses   func(id string) error // if nil, the stream accepts everything
	takes     time.Duration         // duration of one attempt
	mayReturn bool

	tried    [][]string // IDs of each attempt
	settled  []string
	returned []string
	delays   []time.Duration
}

// boxBytes is the byte budget of the worker in these tests.
const boxBytes = 1 << 20

// withBox runs a test with the box of a worker that holds 16 events, so four undecodable ones.
func withBox(t *testing.T, test func(t *testing.T, d *boxFixture)) {
	synctest.Test(t, func(t *testing.T) {
		d := &boxFixture{Box: NewBox(BoxSettings{Capacity: 16, Budget: boxBytes}), mayReturn: true}
		d.settings.Tracker = availability.New(zap.NewNop(), func(availability.Dependency) int { return d.Size() })
		d.settings.Put = func(_ context.Context, dead []result.Result) []error {
			time.Sleep(d.takes)
			d.mu.Lock()
			defer d.mu.Unlock()
			errs, ids := make([]error, len(dead)), make([]string, len(dead))
			for i, s := range dead {
				ids[i] = s.Event.ID
				if d.refuses != nil {
					errs[i] = d.refuses(s.Event.ID)
				}
			}
			d.tried = append(d.tried, ids)
			return errs
		}
		d.settings.Settle = func(_ context.Context, batch []*result.Result) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, s := range batch {
				d.settled = append(d.settled, s.Event.ID)
			}
			return nil
		}
		d.later = func(delivery *feed.Delivery, delay time.Duration) bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.mayReturn {
				d.returned, d.delays = append(d.returned, delivery.Token), append(d.delays, delay)
			}
			return d.mayReturn
		}
		ctx, cancel := context.WithCancel(t.Context())
		d.finish = d.Start(ctx)
		d.finish = sync.OnceFunc(d.finish)
		test(t, d)
		cancel()
		d.finish()
	})
}

// set changes the behaviour of the stream.
func (d *boxFixture) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// elapse lets time pass and waits until the box is idle.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// longestPause bounds the pause between two attempts to store a letter, with jitter.
const longestPause = maxRetry * 13 / 10

var errRefused = errors.New("maximum messages exceeded")

func refuse(string) error { return errRefused }

func malformed(id string) result.Result {
	return result.Result{
		Event: event.Event{ID: id, Category: "errors"}, Outcome: outcome.Dead,
		Reason: outcome.Malformed, Delivery: &feed.Delivery{Token: id, Bytes: 1},
	}
}

func (d *boxFixture) offers(ids ...string) (without []string) {
	for _, id := range ids {
		if !d.Offer(malformed(id)) {
			without = append(without, id)
		}
	}
	return without
}

func expect(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestRefusedLetterDoesNotRepeatOthers(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		d.refuses = func(id string) error {
			if id == "b" {
				return errRefused
			}
			return nil
		}
		d.offers("a", "b", "c")
		synctest.Wait()
		first := 0
		// There are several attempts if the first one begins before all events are offered.
		d.set(func() { first = len(d.tried) })
		elapse(time.Minute)
		expect(t, "settled", []string{"a", "c"}, d.settled)
		for _, ids := range d.tried[first:] {
			expect(t, "tried again", []string{"b"}, ids)
		}
		if n := len(d.tried); n < 60/5 || n > 60/2 {
			t.Errorf("%d attempts in a minute, expected one in 2.5 to 5 s after the first few", n)
		}
		expect(t, "waits", []string{"dead_letter"}, waitWords(d.settings.Tracker))
		d.set(func() { d.refuses = nil })
		elapse(longestPause)
		expect(t, "settled at last", []string{"a", "c", "b"}, d.settled)
		expect(t, "waits", []string(nil), waitWords(d.settings.Tracker))
	})
}

func waitWords(a *availability.Tracker) (words []string) {
	for _, wait := range a.Waits() {
		words = append(words, wait.For)
	}
	return words
}

// Undecodable events may take a quarter of the worker. Further ones go back to the server.
func TestUndecodableEventsBeyondTheirShareAreReturned(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		d.refuses = refuse
		expect(t, "without a letter", []string(nil), d.offers("a", "b", "c", "d", "e", "f"))
		expect(t, "returned", []string{"e", "f"}, d.returned)
		expect(t, "delays", []time.Duration{30 * time.Second, 30 * time.Second}, d.delays)
		d.set(func() { d.refuses = nil })
		elapse(longestPause)
		slices.Sort(d.settled)
		expect(t, "settled", []string{"a", "b", "c", "d"}, d.settled)
		expect(t, "without a letter", []string(nil), d.offers("g"))
		expect(t, "returned while there is room again", []string{"e", "f"}, d.returned)
	})
}

// Slack would receive a returned event a second time.
func TestRejectedEventsAreNotReturned(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		d.refuses = refuse
		for i := range 10 {
			d.Keep(malformed(fmt.Sprint(i)), nil)
		}
		elapse(time.Minute)
		expect(t, "returned", []string(nil), d.returned)
		expect(t, "held", 10, d.Size())
	})
}

// Events that the server does not take back may exceed the limit.
func TestUnreturnableEventsAreHeld(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		d.refuses, d.mayReturn = refuse, false
		expect(t, "without a letter", []string(nil), d.offers("a", "b", "c", "d", "e", "f"))
		elapse(time.Minute)
		expect(t, "held", 6, d.Size())
		expect(t, "settled", []string(nil), d.settled)
		d.set(func() { d.refuses = nil })
		elapse(longestPause)
		expect(t, "settled", 6, len(d.settled))
		expect(t, "held", 0, d.Size())
	})
}

// Undecodable events are limited in bytes too. The first is held regardless of its size.
func TestUndecodableEventsAreBoundedInBytes(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		d.refuses = refuse
		large := malformed("large")
		large.Delivery.Bytes = boxBytes
		d.Offer(large)
		expect(t, "held", 1, d.Size())
		d.offers("small")
		expect(t, "returned", []string{"small"}, d.returned)
		d.set(func() { d.refuses = nil })
		elapse(longestPause)
		d.offers("later")
		expect(t, "returned when the large one is settled", []string{"small"}, d.returned)
	})
}

// The refund follows the letter and precedes the settlement. It is retried until Redis replies, without a
// second letter.
func TestRefundPrecedesSettlement(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		asked, answers := 0, false
		refund := func(context.Context) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			asked++
			expect(t, "settled before", []string(nil), d.settled)
			if len(d.tried) != 1 {
				t.Errorf("%d attempts to store the letter, expected one, before the refund", len(d.tried))
			}
			if !answers {
				return errors.New("connection refused")
			}
			return nil
		}
		d.Keep(malformed("a"), refund)
		elapse(time.Minute)
		if asked < 10 || asked > 40 {
			t.Errorf("asked %d times in a minute", asked)
		}
		d.set(func() { answers = true })
		elapse(longestPause)
		expect(t, "settled", []string{"a"}, d.settled)
		expect(t, "waits", []string(nil), waitWords(d.settings.Tracker)) // the caller reports Redis
	})
}

// A Redis outage costs a group of letters one timeout, not one for each letter.
func TestRefundsRunInParallel(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		for i := range groupSize {
			d.Keep(malformed(fmt.Sprint(i)), func(context.Context) error {
				time.Sleep(time.Second)
				return errors.New("i/o timeout")
			})
		}
		d.Keep(malformed("no refund"), nil)
		elapse(2500 * time.Millisecond)
		expect(t, "settled", []string{"no refund"}, d.settled)
	})
}

// A refund that always fails must not block the other letters.
func TestFailingRefundOnlyDelaysOthers(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		d.Keep(malformed("poisoned"), func(context.Context) error { return errors.New("WRONGTYPE") })
		for i := range 3 {
			d.Keep(malformed(fmt.Sprint(i)), func(context.Context) error { return nil })
		}
		elapse(2 * firstRetry)
		expect(t, "settled", []string{"0", "1", "2"}, d.settled)
		expect(t, "held", 1, d.Size())
	})
}

// An event stays in flight until its log line is written.
func TestUnsettledEventsAreHeld(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		settle, attempts := d.settings.Settle, 0
		d.settings.Settle = func(ctx context.Context, batch []*result.Result) error {
			if attempts++; attempts < 5 {
				return context.Canceled
			}
			return settle(ctx, batch)
		}
		d.offers("a")
		elapse(firstRetry / 2)
		expect(t, "attempts before the first pause is over", 1, attempts)
		expect(t, "held", 1, d.Size())
		elapse(time.Minute)
		expect(t, "settled", []string{"a"}, d.settled)
		expect(t, "letters", [][]string{{"a"}}, d.tried)
	})
}

func TestShutdownRetriesLettersOnce(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		d.refuses = func(id string) error {
			if len(d.tried) > 0 && id == "a" {
				return nil
			}
			return errRefused
		}
		d.offers("a", "b")
		synctest.Wait()
		began := time.Now()
		d.finish()
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %s, expected one attempt at once", took)
		}
		expect(t, "settled", []string{"a"}, d.settled)
		expect(t, "held", 1, d.Size())
	})
}

// A redelivered event was counted against the quota before.
func TestReturnedEventIsCountedOnce(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		for i := range lettersPerMinute {
			expect(t, fmt.Sprintf("letter %d is granted", i), true, d.quotas.take("errors", time.Now()))
		}
		expect(t, "without a letter", []string{"new"}, d.offers("new"))
		back := malformed("back")
		back.Delivery.Redelivered.Store(true)
		expect(t, "taken over", true, d.Offer(back))
	})
}

// A hostile publisher uses a new category for each event.
func TestQuotasAreBounded(t *testing.T) {
	quotas, now := newQuotas(), time.Now()
	taken := func(from, to int) (n int) {
		for i := from; i < to; i++ {
			for range lettersPerMinute + 1 {
				if quotas.take(fmt.Sprintf("c%d", i), now) {
					n++
				}
			}
		}
		return n
	}
	expect(t, "letters of the first categories", maxQuotas*lettersPerMinute, taken(0, maxQuotas))
	expect(t, "letters of 50 further ones together", lettersPerMinute, taken(maxQuotas, maxQuotas+50))
	now = now.Add(time.Minute)
	// The first letter counts against the shared quota. After that, idle categories are evicted.
	expect(t, "letters of new ones a minute later", 1+maxQuotas*lettersPerMinute, taken(2*maxQuotas, 3*maxQuotas))
	expect(t, "categories that are remembered", maxQuotas, len(quotas.categories))
}

// Letters that the stream never accepts, such as for want of a permission, do not delay others, however
// many there are.
func TestFailingLettersDelayNoOthers(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		d.takes = 2 * time.Second
		d.refuses = func(id string) error {
			if id == "good" {
				return nil
			}
			return errRefused
		}
		for i := range 5 * groupSize {
			d.Keep(malformed(fmt.Sprint(i)), nil)
		}
		elapse(time.Minute)
		d.Keep(malformed("good"), nil)
		elapse(10 * time.Second)
		expect(t, "settled", []string{"good"}, d.settled)
	})
}

// The server declines for a moment. Later the box returns the events above its share.
func TestDeclinedEventsAreReturnedLater(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		d.set(func() { d.refuses, d.mayReturn = refuse, false })
		for n := range 16 {
			d.Offer(malformed(fmt.Sprint(n)))
		}
		d.set(func() { d.mayReturn = true })
		elapse(time.Minute)
		if n := d.Size(); n >= 16 {
			t.Errorf("the box still holds all %d events", n)
		}
	})
}
