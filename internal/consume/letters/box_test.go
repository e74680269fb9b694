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

// boxFixture is a letterbox, and a dead-letter stream that a test makes refuse.
type boxFixture struct {
	*Box
	finish    func()
	mu        sync.Mutex            // of what follows
	refuses   func(id string) error // nil: the stream takes everything
	takes     time.Duration         // one attempt
	mayReturn bool

	tried    [][]string // ids of each attempt
	settled  []string
	returned []string
	delays   []time.Duration
}

// boxBytes is what a worker holds in these tests at most, in bytes.
const boxBytes = 1 << 20

// withBox runs a test with a letterbox for a worker that holds 64 events, so 4 letters of each kind.
func withBox(t *testing.T, test func(t *testing.T, d *boxFixture)) {
	synctest.Test(t, func(t *testing.T) {
		d := &boxFixture{Box: NewBox(BoxSettings{Capacity: 64, Budget: boxBytes}), mayReturn: true}
		d.tracker = availability.New(zap.NewNop(), func(availability.Dependency) int { return d.Size() })
		d.put = func(_ context.Context, dead []result.Result) []error {
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
		d.settle = func(batch []*result.Result) {
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, s := range batch {
				d.settled = append(d.settled, s.Event.ID)
			}
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
		finished := false
		finish := d.finish
		d.finish = func() { finished = true; finish() }
		test(t, d)
		cancel()
		if !finished {
			d.finish()
		}
	})
}

// set changes what the stream does.
func (d *boxFixture) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// elapse lets time pass, and what is due then happen.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var errRefused = errors.New("maximum messages exceeded")

func refuse(string) error { return errRefused }

func malformed(id string) result.Result {
	return result.Result{
		Event: event.Event{ID: id, Category: "errors"}, Outcome: outcome.Dead, Reason: outcome.Malformed, Delivery: &feed.Delivery{Token: id, Cost: 1},
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
		// more than one where the first attempt begins before all are offered
		d.set(func() { first = len(d.tried) })
		elapse(time.Minute)
		expect(t, "settled", []string{"a", "c"}, d.settled)
		for _, ids := range d.tried[first:] {
			expect(t, "tried again", []string{"b"}, ids)
		}
		if n := len(d.tried); n < 60/5 || n > 60/2 {
			t.Errorf("%d attempts in a minute, expected one in 2.5 to 5 s after the first few", n)
		}
		expect(t, "waits", []string{"dead_letter"}, waitWords(d.tracker))
		d.set(func() { d.refuses = nil })
		elapse(longestRetry)
		expect(t, "settled at last", []string{"a", "c", "b"}, d.settled)
		expect(t, "waits", []string(nil), waitWords(d.tracker))
	})
}

func waitWords(a *availability.Tracker) (words []string) {
	for _, wait := range a.Waits() {
		words = append(words, wait.For)
	}
	return words
}

func TestExcessLettersAreReturned(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		d.refuses = refuse
		d.offers("a")
		synctest.Wait()
		expect(t, "without a letter", []string(nil), d.offers("b", "c", "d", "e", "f"))
		expect(t, "returned", []string{"e", "f"}, d.returned)
		for _, delay := range d.delays {
			if delay < 10*time.Second || delay > 20*time.Second {
				t.Errorf("returned for %s, expected about 15 s", delay)
			}
		}
		d.set(func() { d.refuses = nil })
		elapse(longestRetry)
		slices.Sort(d.settled)
		expect(t, "settled", []string{"a", "b", "c", "d"}, d.settled)
	})
}

// What Slack has refused is never returned, however much of it there is: it would be posted again.
func TestWhatSlackHasRefusedIsNotReturned(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		d.refuses = refuse
		d.offers("a")
		synctest.Wait()
		for i := range 10 {
			d.Keep(malformed(fmt.Sprint(i)), nil)
		}
		expect(t, "returned", []string(nil), d.returned)
		expect(t, "held", 1+10, d.Size())
		d.set(func() { d.refuses = nil })
		elapse(longestRetry)
		expect(t, "settled", 1+10, len(d.settled))
	})
}

// Where nothing may be returned, an undecodable event goes without its letter: else it would take the room of
// good ones. One that was charged stays.
func TestWhatCannotBeReturned(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		d.refuses, d.mayReturn = refuse, false
		d.offers("a")
		synctest.Wait()
		expect(t, "without a letter", []string{"e", "f"}, d.offers("b", "c", "d", "e", "f"))
		for i := range 10 {
			d.Keep(malformed(fmt.Sprint(i)), nil)
		}
		expect(t, "held", 4+10, d.Size())
	})
}

// Large letters are bounded by their bytes, and one is always taken.
func TestLettersAreBoundedInBytes(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		d.refuses = refuse
		large := malformed("large")
		large.Delivery.Cost = boxBytes / undecodableShare * 2
		d.Offer(large)
		synctest.Wait()
		expect(t, "held", 1, d.Size())
		d.offers("small")
		expect(t, "returned", []string{"small"}, d.returned)
	})
}

// The refund comes between the letter and the settling, and is made until Redis answers, without a second
// letter.
func TestAnEventIsSettledAfterItsRefund(t *testing.T) {
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
		elapse(longestRetry)
		expect(t, "settled", []string{"a"}, d.settled)
		expect(t, "waits", []string(nil), waitWords(d.tracker)) // Redis is the caller's to report
	})
}

// While Redis does not answer it is asked about one event at a time, however many wait.
func TestOneFailedRefundPostponesTheOthers(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		asked := 0
		for i := range 4 {
			d.Keep(malformed(fmt.Sprint(i)), func(context.Context) error { asked++; return errors.New("connection refused") })
		}
		elapse(firstRetry / 3)
		expect(t, "calls before the first pause is over", 1, asked)
	})
}

// A letter that fails for a reason of its own does not keep the others waiting for ever.
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

func TestAnEndingWorkerTriesItsLettersOnceMore(t *testing.T) {
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

// An event that comes back was counted in its category's quota before.
func TestAReturnedEventIsCountedOnce(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		for d.quotas.take("errors", time.Now()) {
		}
		expect(t, "without a letter", []string{"new"}, d.offers("new"))
		back := malformed("back")
		back.Delivery.Redelivered = true
		expect(t, "taken over", true, d.Offer(back))
	})
}

// Many letters are tried a few at a time: the first make room for others before the last are tried.
func TestAnAttemptHasFewLetters(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		d.refuses = refuse
		for i := range 100 {
			d.Keep(malformed(fmt.Sprint(i)), func(context.Context) error { time.Sleep(time.Second); return nil })
		}
		d.set(func() { d.refuses = nil })
		elapse(3 * time.Minute)
		for _, ids := range d.tried {
			if len(ids) > triedAtOnce {
				t.Errorf("%d letters in one attempt, expected %d at most", len(ids), triedAtOnce)
			}
		}
		expect(t, "settled", 100, len(d.settled))
	})
}

// A hostile publisher names a new category in each event.
func TestQuotasAreBounded(t *testing.T) {
	quotas, now := newQuotas(), time.Now()
	taken := func(from, to int) (n int) {
		for i := from; i < to; i++ {
			for range lettersAMinute + 1 {
				if quotas.take(fmt.Sprintf("c%d", i), now) {
					n++
				}
			}
		}
		return n
	}
	expect(t, "letters of the first categories", quotaCategories*lettersAMinute, taken(0, quotaCategories))
	expect(t, "letters of 50 further ones together", lettersAMinute, taken(quotaCategories, quotaCategories+50))
	now = now.Add(time.Minute)
	expect(t, "letters of new ones a minute later", quotaCategories*lettersAMinute, taken(2*quotaCategories, 3*quotaCategories))
	expect(t, "categories that are remembered", quotaCategories, len(quotas.categories))
}

// Letters that the stream never takes, such as for want of a permission, keep no other waiting, however many
// they are.
func TestLettersThatAlwaysFailKeepNoOtherWaiting(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxFixture) {
		d.takes = 2 * time.Second
		d.refuses = func(id string) error {
			if id == "good" {
				return nil
			}
			return errRefused
		}
		for i := range 5 * triedAtOnce {
			d.Keep(malformed(fmt.Sprint(i)), nil)
		}
		elapse(time.Minute)
		d.Keep(malformed("good"), nil)
		elapse(10 * time.Second)
		expect(t, "settled", []string{"good"}, d.settled)
	})
}
