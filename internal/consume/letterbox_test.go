package consume

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

	"notifier/internal/event"
	"notifier/internal/outcome"
)

// boxDesk is a letterbox, and a dead-letter stream that a test makes refuse.
type boxDesk struct {
	*letterbox
	finish  func()
	mu      sync.Mutex            // of what follows
	refuses func(id string) error // nil: the stream takes everything
	takes   time.Duration         // one attempt
	mayPark bool

	tried    [][]string // ids of each attempt
	settled  []string
	returned []string
	delays   []time.Duration
}

// boxBytes is what a worker holds in these tests at most, in bytes.
const boxBytes = 1 << 20

// withBox runs a test with a letterbox for a worker that holds 64 events, so 4 letters of each kind.
func withBox(t *testing.T, test func(t *testing.T, d *boxDesk)) {
	synctest.Test(t, func(t *testing.T) {
		d := &boxDesk{letterbox: newLetterbox(64, boxBytes), mayPark: true}
		d.availability = newAvailability(newWaitLog(zap.NewNop(), func(dependency) int { return d.size() }))
		d.store = func(_ context.Context, dead []Settled) []error {
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
		d.settle = func(batch []Settled) {
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, s := range batch {
				d.settled = append(d.settled, s.Event.ID)
			}
		}
		d.park = func(delivery *delivery, delay time.Duration) bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.mayPark {
				d.returned, d.delays = append(d.returned, delivery.token), append(d.delays, delay)
			}
			return d.mayPark
		}
		ctx, cancel := context.WithCancel(t.Context())
		d.finish = d.start(ctx)
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
func (d *boxDesk) set(change func()) {
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

func malformed(id string) Settled {
	return Settled{
		Event: event.Event{ID: id, Category: "errors"}, Outcome: outcome.Dead, Reason: outcome.Malformed, delivery: &delivery{token: id, cost: 1},
	}
}

func (d *boxDesk) offers(ids ...string) (without []string) {
	for _, id := range ids {
		for _, s := range d.offer([]Settled{malformed(id)}) {
			without = append(without, s.Event.ID)
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

func TestALetterThatIsRefusedDoesNotRepeatTheOthers(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxDesk) {
		d.refuses = func(id string) error {
			if id == "b" {
				return errRefused
			}
			return nil
		}
		d.offer([]Settled{malformed("a"), malformed("b"), malformed("c")})
		synctest.Wait()
		first := 0
		d.set(func() { first = len(d.tried) }) // more than one where the first attempt begins before all are offered
		elapse(time.Minute)
		expect(t, "settled", []string{"a", "c"}, d.settled)
		for _, ids := range d.tried[first:] {
			expect(t, "tried again", []string{"b"}, ids)
		}
		if n := len(d.tried); n < 60/5 || n > 60/2 {
			t.Errorf("%d attempts in a minute, expected one in 2.5 to 5 s after the first few", n)
		}
		expect(t, "waits", []string{"dead_letter"}, waitWords(d.availability))
		d.set(func() { d.refuses = nil })
		elapse(lastLetterRetry)
		expect(t, "settled at last", []string{"a", "c", "b"}, d.settled)
		expect(t, "waits", []string(nil), waitWords(d.availability))
	})
}

func waitWords(a *availability) (words []string) {
	for _, wait := range a.waits() {
		words = append(words, wait.For)
	}
	return words
}

func TestWhatExceedsTheLetterboxIsReturnedForAWhile(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxDesk) {
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
		elapse(lastLetterRetry)
		slices.Sort(d.settled)
		expect(t, "settled", []string{"a", "b", "c", "d"}, d.settled)
	})
}

// What Slack has refused is never returned, however much of it there is: it would be posted again.
func TestWhatSlackHasRefusedIsNotReturned(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxDesk) {
		d.refuses = refuse
		d.offers("a")
		synctest.Wait()
		for i := range 10 {
			d.keep(malformed(fmt.Sprint(i)), nil)
		}
		expect(t, "returned", []string(nil), d.returned)
		expect(t, "held", 1+10, d.size())
		d.set(func() { d.refuses = nil })
		elapse(lastLetterRetry)
		expect(t, "settled", 1+10, len(d.settled))
	})
}

// Where nothing may be returned, an undecodable event goes without its letter: else it would take the room of good ones. One
// that was charged stays.
func TestWhatCannotBeReturned(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxDesk) {
		d.refuses, d.mayPark = refuse, false
		d.offers("a")
		synctest.Wait()
		expect(t, "without a letter", []string{"e", "f"}, d.offers("b", "c", "d", "e", "f"))
		for i := range 10 {
			d.keep(malformed(fmt.Sprint(i)), nil)
		}
		expect(t, "held", 4+10, d.size())
	})
}

// No more undecodable events are returned at a time than may wait here: they count in the consumer's MaxAckPending.
func TestTheReturnedAreBounded(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxDesk) {
		d.refuses = refuse
		d.offers("a")
		synctest.Wait()
		expect(t, "without a letter", []string{"i", "j"}, d.offers("b", "c", "d", "e", "f", "g", "h", "i", "j"))
		expect(t, "returned", []string{"e", "f", "g", "h"}, d.returned)
		elapse(letterForgotten + time.Second)
		expect(t, "without a letter, when they have gone to another replica", []string(nil), d.offers("k"))
	})
}

// An event that comes back has its letter granted already, whatever its category has written since.
func TestAReturnedEventKeepsItsGrant(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxDesk) {
		d.refuses = refuse
		d.offers("a")
		synctest.Wait()
		d.offers("b", "c", "d", "e")
		expect(t, "returned", []string{"e"}, d.returned)
		for d.quota.take("errors", time.Now()) {
		}
		expect(t, "without a letter", []string{"f"}, d.offers("e", "f"))
		expect(t, "returned again", []string{"e", "e"}, d.returned)
	})
}

// A burst waits for a stream that takes letters: nothing is returned only because it came fast.
func TestABurstWaitsForAHealthyStream(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxDesk) {
		d.takes = 100 * time.Millisecond
		var want []string
		for i := range 30 {
			want = append(want, fmt.Sprint(i))
		}
		expect(t, "without a letter", []string(nil), d.offers(want...))
		elapse(time.Second)
		expect(t, "settled", want, d.settled)
		expect(t, "returned", []string(nil), d.returned)
	})
}

// Large letters are bounded by their bytes, and one is always taken.
func TestLettersAreBoundedInBytes(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxDesk) {
		d.refuses = refuse
		large := malformed("large")
		large.delivery.cost = boxBytes / letterShares * 2
		d.offer([]Settled{large})
		synctest.Wait()
		expect(t, "held", 1, d.size())
		d.offers("small")
		expect(t, "returned", []string{"small"}, d.returned)
	})
}

// The refund comes between the letter and the settling, and is made until Redis answers, without a second letter.
func TestAnEventIsSettledAfterItsRefund(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxDesk) {
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
		d.keep(malformed("a"), refund)
		elapse(time.Minute)
		if asked < 10 || asked > 40 {
			t.Errorf("asked %d times in a minute", asked)
		}
		d.set(func() { answers = true })
		elapse(lastLetterRetry)
		expect(t, "settled", []string{"a"}, d.settled)
		expect(t, "waits", []string(nil), waitWords(d.availability)) // Redis is the caller's to report
	})
}

// While Redis does not answer it is asked about one event at a time, however many wait.
func TestOneFailedRefundPostponesTheOthers(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxDesk) {
		asked := 0
		for i := range 4 {
			d.keep(malformed(fmt.Sprint(i)), func(context.Context) error { asked++; return errors.New("connection refused") })
		}
		elapse(firstLetterRetry / 3)
		expect(t, "calls before the first pause is over", 1, asked)
	})
}

// A letter that fails for a reason of its own does not keep the others waiting for ever.
func TestARefundThatAlwaysFailsDelaysTheOthersOnly(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxDesk) {
		d.keep(malformed("poisoned"), func(context.Context) error { return errors.New("WRONGTYPE") })
		for i := range 3 {
			d.keep(malformed(fmt.Sprint(i)), func(context.Context) error { return nil })
		}
		elapse(2 * firstLetterRetry)
		expect(t, "settled", []string{"0", "1", "2"}, d.settled)
		expect(t, "held", 1, d.size())
	})
}

func TestAnEndingWorkerTriesItsLettersOnceMore(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxDesk) {
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
		expect(t, "held", 1, d.size())
	})
}

// Nobody waits for room when the worker has no more time.
func TestAnEndingWorkerDoesNotWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLetterbox(4, boxBytes)
		b.availability = newAvailability(newWaitLog(zap.NewNop(), func(dependency) int { return 0 }))
		b.store = func(_ context.Context, dead []Settled) []error { return make([]error, len(dead)) }
		b.settle = func([]Settled) {}
		b.park = func(*delivery, time.Duration) bool { return false }
		ctx, cancel := context.WithCancel(t.Context())
		finish := b.start(ctx)
		stuck := func(context.Context) error { return errors.New("connection refused") }
		b.keep(malformed("a"), stuck)
		kept := make(chan struct{})
		go func() {
			b.keep(malformed("b"), stuck)
			close(kept)
		}()
		elapse(roomPatience / 2)
		select {
		case <-kept:
			t.Error("there was room, expected none while Redis does not answer")
		default:
		}
		cancel()
		ended := time.Now()
		<-kept
		if waited := time.Since(ended); waited > 0 {
			t.Errorf("it waited for %s more, expected no wait", waited)
		}
		finish()
	})
}
