package consume

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// What waits in lanes and both kinds of letters leave an eighth of what a worker may hold.
func TestLanesAndLettersLeaveRoomForDeciding(t *testing.T) {
	const capacity, bytes = 2048, 64 << 20
	lane, b := laneBound(capacity, bytes), newLetterbox(capacity, bytes)
	if n := lane.Items + b.undecodable.mostCount + b.others.mostCount; n > capacity*7/8 {
		t.Errorf("%d of %d events may wait, expected seven eighths at most", n, capacity)
	}
	if n := lane.Bytes + b.undecodable.mostBytes + b.others.mostBytes; n > bytes*7/8 {
		t.Errorf("%d of %d bytes may wait, expected seven eighths at most", n, bytes)
	}
}

// fillUndecodable fills the share of undecodable events, while the refund of another event keeps the attempt from ending.
func (d *boxDesk) fillUndecodable(t *testing.T, refundTakes time.Duration) {
	t.Helper()
	d.keep(malformed("refused by Slack"), func(context.Context) error { time.Sleep(refundTakes); return nil })
	synctest.Wait()
	expect(t, "without a letter", []string(nil), d.offers("a", "b", "c", "d"))
}

// offerMany offers so many events in one batch, and returns how many go without a letter and how long that takes.
func (d *boxDesk) offerMany(n int) (without int, took time.Duration) {
	batch := make([]Settled, n)
	for i := range batch {
		batch[i] = malformed(fmt.Sprint("more", i))
		batch[i].Event.Category = fmt.Sprint("category", i)
	}
	began := time.Now()
	return len(d.offer(batch)), time.Since(began)
}

// However slow the letters are, a batch of undecodable events does not keep the loop from its work.
func TestABatchWaitsAboutASecondForRoom(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxDesk) {
		d.fillUndecodable(t, time.Minute)
		without, took := d.offerMany(10)
		if took > roomPatience {
			t.Errorf("the loop waited for %s, expected %s at most", took, roomPatience)
		}
		expect(t, "returned", 4, len(d.returned))
		expect(t, "without a letter", 6, without)
	})
}

// A server that is slow to take events back does not stop the loop either.
func TestABatchDoesNotWaitLongToBeReturned(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxDesk) {
		d.fillUndecodable(t, time.Minute)
		d.undecodable.count, d.undecodable.mostCount = 100, 100
		d.park = func(*delivery, time.Duration) bool { time.Sleep(parkingTimeout); return true }
		without, took := d.offerMany(100)
		if most := 2*roomPatience + parkingTimeout; took > most {
			t.Errorf("the loop waited for %s, expected %s at most", took, most)
		}
		if without == 100 {
			t.Error("nothing was returned")
		}
	})
}

// A poster waits no longer than the loop for events that Slack has refused, and then takes them all the same.
func TestAPosterWaitsAboutASecondForRoom(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxDesk) {
		slow := func(context.Context) error { time.Sleep(time.Minute); return nil }
		d.keep(malformed("0"), slow)
		synctest.Wait()
		began := time.Now()
		for i := range 4 {
			d.keep(malformed(fmt.Sprint(1+i)), slow)
		}
		if took := time.Since(began); took > roomPatience {
			t.Errorf("the poster waited for %s, expected %s at most", took, roomPatience)
		}
		expect(t, "held", 5, d.size())
	})
}

// Many letters are tried a few at a time: the first make room for others before the last are tried.
func TestAnAttemptHasFewLetters(t *testing.T) {
	withBox(t, func(t *testing.T, d *boxDesk) {
		d.refuses = refuse
		d.keep(malformed("0"), nil)
		synctest.Wait()
		for i := range 100 { // without a wait, because the stream refuses
			d.keep(malformed(fmt.Sprint(1+i)), func(context.Context) error { time.Sleep(time.Second); return nil })
		}
		d.set(func() { d.refuses = nil })
		elapse(2 * time.Minute)
		for _, ids := range d.tried {
			if len(ids) > lettersAtOnce {
				t.Errorf("%d letters in one attempt, expected %d at most", len(ids), lettersAtOnce)
			}
		}
		expect(t, "settled", 101, len(d.settled))
	})
}

// The server may be slow to take an event back. Posters with a letter do not wait for that.
func TestTheLetterboxIsFreeWhileAnEventIsReturned(t *testing.T) {
	b := newLetterbox(16, boxBytes)
	b.refusing = true
	parked := 0
	b.park = func(*delivery, time.Duration) bool {
		parked++
		if !b.mu.TryLock() {
			t.Error("the letterbox is locked while an event is returned")
			return false
		}
		b.mu.Unlock()
		return true
	}
	b.offer([]Settled{malformed("a"), malformed("b")})
	expect(t, "returned", 1, parked)
}
