package ratelimit_test

import (
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
