package ratelimit_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/internal/testkit"
)

// withJournal runs a test with a limiter that remembers what it admits.
func withJournal(t *testing.T, test func(t *testing.T, s *store, c caller)) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.limiter(t, testkit.Rules("9/10m", "9/10m", ""), day)
		c.KeepJournal()
		test(t, s, c)
	})
}

// putBackAll empties the store and puts back what the limiter remembers.
func putBackAll(t *testing.T, s *store, c caller) {
	testkit.Check(t, s.FlushAll(t.Context()).Err())
	conn := s.Conn()
	defer func() { _ = conn.Close() }()
	testkit.Check(t, c.PutBack(t.Context(), conn))
}

// An event that was in flight for longer than its id is known is charged anew when it comes again, and so it is put back.
func TestWhatIsAdmittedAnewIsPutBack(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		e := event("e", "a")
		c.want(ratelimit.Admitted, e)
		s.advance(t, 11*time.Minute)
		c.want(ratelimit.Admitted, e)
		before := s.ZCard(t.Context(), "{n}:global").Val()
		putBackAll(t, s, c)
		if n := s.ZCard(t.Context(), "{n}:global").Val(); n != 1 {
			t.Errorf("%d slots, expected 1 (before %d)", n, before)
		}
	})
}

// A refund that is made twice is remembered once.
func TestWhatIsRefundedTwiceIsNotPutBack(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		e := event("e", "a")
		c.want(ratelimit.Admitted, e)
		c.refund(e)
		c.refund(e)
		putBackAll(t, s, c)
		if n := s.ZCard(t.Context(), "{n}:global").Val(); n != 0 {
			t.Errorf("%d slots, expected 0", n)
		}
	})
}

// A refund that was not answered may have been made: what it gave back is not put back, until the event is posted after all.
func TestWhatMayHaveBeenRefundedIsNotPutBack(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		e, posted := event("e", "a"), event("posted", "a")
		c.want(ratelimit.Admitted, e, posted)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		for _, refunded := range []ratelimit.Request{e, posted} {
			if _, err := c.Refund(cancelled, refunded, ""); err == nil {
				t.Fatal("a refund without an answer reports no error")
			}
		}
		c.wantPermit(ratelimit.Granted, 1, posted, "", "first")
		putBackAll(t, s, c)
		if slots := s.ZRange(t.Context(), "{n}:global", 0, -1).Val(); !slices.Equal(slots, []string{slot(posted)}) {
			t.Errorf("slots %q, expected that of the posted event alone", slots)
		}
		c.want(ratelimit.Admitted, e) // it was not refunded, so it goes on and is charged
		putBackAll(t, s, c)
		if n := s.ZCard(t.Context(), "{n}:global").Val(); n != 2 {
			t.Errorf("%d slots after the event was asked for again, expected 2", n)
		}
	})
}

// An id in flight is put back for as long as ids are known, also where that is longer than the global limit's window: the global set
// shows which ids those are, and what it does not show is removed.
func TestAnIDIsPutBackThatIsOlderThanTheGlobalWindow(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.limiter(t, testkit.Rules("9/1s", "9/10m:1m", ""), day)
		c.KeepJournal()
		e := event("e", "a")
		c.want(ratelimit.Admitted, e)
		s.advance(t, 10*time.Second)
		if s.embedded == nil {
			c.AgeJournal((10 * time.Second).Microseconds())
		}
		putBackAll(t, s, c)
		if err := s.ZScore(t.Context(), "{n}:global", slot(e)).Err(); err != nil {
			t.Errorf("the global set does not show that the event is in flight: %v", err)
		}
		c.want(ratelimit.Admitted, event("later", "a")) // which is followed by tidying
		if _, found, err := c.InFlight(t.Context(), e); err != nil || !found {
			t.Errorf("the event is not in flight any more (%v): it would be charged and sent again", err)
		}
	})
}

// A post that began after a copy of the store was made is put back into that copy, also where the admission alone is too old by then to
// be known.
func TestAPostIsPutBackIntoARecordThatIsTooOldWithoutIt(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		later := func(d time.Duration) {
			s.advance(t, d)
			if s.embedded == nil {
				c.AgeJournal(d.Microseconds())
			}
		}
		e := event("e", "a")
		c.want(ratelimit.Admitted, e)
		later(9 * time.Minute)
		c.wantPermit(ratelimit.Granted, 1, e, "", "p1")
		state, delivery, _ := strings.Cut(s.HGet(t.Context(), "{n}:inflight", slot(e)).Val(), " ")
		fields := strings.Split(state, ":") // since, posts, begun, name
		if len(fields) != 4 {
			t.Fatalf("the record of a post is %q", state)
		}
		begun, err := strconv.ParseInt(fields[2], 10, 64)
		testkit.Check(t, err)
		c.JournalTimes(e, begun, 0)
		testkit.Check(t, s.HSet(t.Context(), "{n}:inflight", slot(e), fields[0]+" "+delivery).Err())
		later(2 * time.Minute)
		conn := s.Conn()
		defer func() { _ = conn.Close() }()
		testkit.Check(t, c.PutBack(t.Context(), conn))
		if refunded, err := c.Refund(t.Context(), e, ""); refunded || err != nil {
			t.Errorf("refunded: %t, %v, although a post has begun whose result nobody knows", refunded, err)
		}
		c.wantPermit(ratelimit.Granted, 2, e, "p1", "p2")
	})
}

// An id that a copy of the store had as sent earlier is known for as long as one that it did not have.
func TestAnIDThatWasSentAgainIsKnownAsLong(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		e := event("e", "a")
		testkit.Check(t, c.Sent(t.Context(), e))
		sent, ends := s.score(t, "{n}:sent", slot(e)), s.PExpireTime(t.Context(), "{n}:sent").Val()
		c.JournalTimes(e, 0, sent)
		const earlier = time.Hour
		s.put(t, "{n}:sent", sent-earlier.Microseconds(), slot(e))
		testkit.Check(t, s.PExpireAt(t.Context(), "{n}:sent", time.UnixMilli((ends-earlier).Milliseconds())).Err())
		conn := s.Conn()
		defer func() { _ = conn.Close() }()
		testkit.Check(t, c.PutBack(t.Context(), conn))
		if got := s.PExpireTime(t.Context(), "{n}:sent").Val(); got != ends {
			t.Errorf("ids are forgotten %s early", ends-got)
		}
	})
}

// The name of a slot that no window counts any more does not keep the new slot of its event out.
func TestASlotIsPutBackAlthoughAnOldOneHasItsName(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		e := event("e", "a")
		c.want(ratelimit.Admitted, e)
		s.advance(t, 11*time.Minute)
		c.want(ratelimit.Admitted, by("another", e))
		old := s.score(t, "{n}:global", slot(e)) - (11 * time.Minute).Microseconds()
		s.ZAddXX(t.Context(), "{n}:global", redisZ(float64(old), slot(e))) // the replica had not received the second admission
		conn := s.Conn()
		defer func() { _ = conn.Close() }()
		testkit.Check(t, c.PutBack(t.Context(), conn))
		if now := s.score(t, "{n}:global", slot(e)); now == old {
			t.Errorf("the slot counts from its old admission, 11 minutes ago")
		}
	})
}

func redisZ(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }
