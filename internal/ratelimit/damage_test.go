package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/internal/testkit"
)

// Whoever may write to Redis can do much. What they write must be named and bounded: it never stops everything, or anything
// for ever.

// century is far in the future.
const century = 100 * 365 * 24 * time.Hour

func TestACategoryWhoseKeyIsOfAnotherTypeHoldsUpItselfAlone(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("3/30m", "2/30m", ""), day)
		before := event("before", "a")
		limiter.admit(before)
		s.Set(t.Context(), "{n}:category:a", "somebody else's", 0)
		got := limiter.admit(event("e", "a"), event("f", "b"), before, event("g", "a"), event("h", "b"))
		sameOutcomes(t, []ratelimit.Outcome{ratelimit.Damaged, ratelimit.Admitted, ratelimit.Admitted, ratelimit.Damaged, ratelimit.Admitted}, got)
		if got := s.Get(t.Context(), "{n}:category:a").Val(); got != "somebody else's" {
			t.Errorf("the key holds %q now", got)
		}
		usages, err := limiter.Peek(t.Context(), "a", "b")
		testkit.Check(t, err)
		if usages[0].Used != 3 || !usages[1].Damaged || usages[1].Used != 2 || usages[2].Damaged || usages[2].Used != 2 {
			t.Errorf("%+v, expected category a damaged and full, and the others as they are", usages)
		}
		if _, err := limiter.Slots(t.Context(), 10, "a", "b"); err != nil {
			t.Error(err)
		}
		if !limiter.refund(before) {
			t.Error("the event that was admitted before is not refunded")
		}
		if got := (ratelimit.DamagedKey{Key: got[0].Key}).Error(); !strings.Contains(got, `"{n}:category:a"`) || !strings.Contains(got, "remove it") {
			t.Errorf("%q does not name the key and what to do", got)
		}
		s.Del(t.Context(), "{n}:category:a")
		limiter.want(ratelimit.Admitted, event("e", "a"))
	})
}

// A set of buckets whose newest entry is none is as good as one of another type.
func TestWhatIsNoBucketHoldsUpItsCategoryAlone(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("9/30m:1m", "5/10m:1m", ""), day)
		limiter.want(ratelimit.Admitted, event("before", "a"))
		clock, _ := s.clock(t)
		s.ZAdd(t.Context(), "{n}:buckets:category:a", redis.Z{Score: float64(clock + time.Hour.Microseconds()), Member: "somebody else's"})
		got := limiter.admit(event("e", "a"), event("f", "b"))
		sameOutcomes(t, []ratelimit.Outcome{ratelimit.Damaged, ratelimit.Admitted}, got)
		if got[0].Key != "{n}:buckets:category:a" {
			t.Errorf("%+v, expected the set of buckets", got[0])
		}
		usages, err := limiter.Peek(t.Context(), "a", "b")
		testkit.Check(t, err)
		if !usages[1].Damaged || usages[2].Damaged {
			t.Errorf("%+v, expected category a damaged", usages)
		}
	})
}

// A bucket ends 31 days after it began at the latest: what is further ahead is removed.
func TestABucketFarInTheFutureIsNone(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("9/30m:1m", "5/10m:1m", ""), day)
		limiter.want(ratelimit.Admitted, event("before", "a"))
		clock, _ := s.clock(t)
		s.ZAdd(t.Context(), "{n}:buckets:category:a", redis.Z{Score: float64(clock + century.Microseconds()), Member: "1 5 1"})
		limiter.want(ratelimit.Admitted, costing(event("e", "a"), 4))
		limiter.want(ratelimit.Category, event("f", "a"))
	})
}

func TestEveryCallNamesAKeyOfAnotherType(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter, ctx := s.limiter(t, testkit.Rules("100/30m", "10/30m", ""), day), t.Context()
		e := event("e", "a")
		calls := map[string]func() error{
			"register":   func() error { return limiter.Ready(ctx) },
			"global":     func() error { _, err := limiter.Admit(ctx, []ratelimit.Request{e}); return err },
			"categories": func() error { _, err := limiter.Admit(ctx, []ratelimit.Request{e}); return err },
			"sent":       func() error { return limiter.Sent(ctx, e) },
			"inflight":   func() error { _, err := limiter.Refund(ctx, e, ""); return err },
			"pauses":     func() error { _, err := limiter.Pauses(ctx); return err },
			"probes": func() error {
				_, _, err := limiter.Answered(ctx, ratelimit.Answer{Channel: aChannel, Name: "p"})
				return err
			},
			"channels": func() error {
				_, err := limiter.Begin(ctx, ratelimit.Post{Channel: "#a", Name: "p", Longest: time.Second})
				return err
			},
		}
		for name, call := range calls {
			s.FlushAll(ctx)
			limiter.ForgetIndexed()
			key := "{n}:" + name
			s.Set(ctx, key, "somebody else's", 0)
			var damaged ratelimit.DamagedKey
			if err := call(); !errors.As(err, &damaged) || damaged.Key != key || !strings.Contains(err.Error(), key) {
				t.Errorf("%s: %v, expected an error that names the key", name, err)
			}
			s.Del(ctx, key)
			if err := call(); err != nil {
				t.Errorf("%s, once the key is removed: %v", name, err)
			}
		}
	})
}

func TestARecordOfAnotherFormIsNone(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "10/30m", ""), day)
		for i, record := range []string{"", "garbage", "12 ", " ", "x:1:2:y z", strings.Repeat("9", 400), "-1 message of e", "1e300 message of e", strings.Repeat("\x00", 1<<16)} {
			e := event(fmt.Sprint("e", i), "a")
			s.HSet(t.Context(), "{n}:inflight", slot(e), record)
			if limiter.refund(e) {
				t.Errorf("record %.20q is refunded", record)
			}
			limiter.wantPermit(ratelimit.NotInFlight, 0, e, "", "p")
			limiter.want(ratelimit.Admitted, e)
			limiter.wantPermit(ratelimit.Granted, 1, e, "", "p")
			s.FlushAll(t.Context())
		}
	})
}

func TestAnEntryFarInTheFutureIsNoAdmission(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("3/30m", "2/30m", ""), day)
		limiter.admit(event("before", "a"))
		now := s.score(t, "{n}:global", "a:before")
		for _, ahead := range []time.Duration{25 * time.Hour, century} {
			future := now + ahead.Microseconds()
			for _, key := range []string{"{n}:global", "{n}:category:a", "{n}:categories"} {
				s.ZAdd(t.Context(), key, zAt(future, "x"), zAt(future+1, "y"), zAt(future+2, "z"))
				s.Persist(t.Context(), key)
			}
			usages, err := limiter.Peek(t.Context(), "a")
			testkit.Check(t, err)
			for _, usage := range usages {
				if usage.FreeIn > 25*time.Hour {
					t.Errorf("%+v is not bounded", usage)
				}
			}
		}
		limiter.sent(event("before", "a"))
		if got := s.score(t, "{n}:sent", "a:before"); got-now > time.Minute.Microseconds() {
			t.Errorf("recorded as sent %s ahead", time.Duration(got-now)*time.Microsecond)
		}
		limiter.want(ratelimit.Admitted, event("e", "a"))
		if clock, lag := s.clock(t); lag != 0 || clock-now > time.Minute.Microseconds() {
			t.Errorf("the clock is %d us ahead", lag)
		}
		limiter.want(ratelimit.Category, event("f", "a")) // two slots are taken, and none by what was put there
		limiter.want(ratelimit.Admitted, event("g", "b"))
		limiter.want(ratelimit.Global, event("h", "c"))
		for _, key := range []string{"{n}:global", "{n}:category:a", "{n}:categories"} {
			if left := s.ZCount(t.Context(), key, fmt.Sprint(now+day.Microseconds()), "+inf").Val(); left != 0 || s.TTL(t.Context(), key).Val() < 0 {
				t.Errorf("%s: %d entries from the future are left, and it lives for %s", key, left, s.TTL(t.Context(), key).Val())
			}
		}
	})
}

// A clock that was months ahead for an hour must not suppress for months what was sent, or begun, in that hour.
func TestAnIDFromTheFutureIsNotKnown(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "10/30m", ""), day)
		clock, _ := limiter.micros(s)
		sent, begun, recent := event("sent", "a"), event("begun", "a"), event("recent", "a")
		s.ZAdd(t.Context(), "{n}:sent", zAt(clock+30*day.Microseconds(), slot(sent)), zAt(clock+day.Microseconds()/2, slot(recent)))
		s.HSet(t.Context(), "{n}:inflight", slot(begun), fmt.Sprintf("%d another message", clock+30*day.Microseconds()))
		limiter.want(ratelimit.Duplicate, recent) // a clock may have been that far ahead, and has been set back
		limiter.want(ratelimit.Admitted, sent, begun)
		limiter.sent(sent)
		limiter.want(ratelimit.Duplicate, sent, ratelimit.Request{ID: "begun", Delivery: "a third message", Category: "a", Cost: 1})
	})
}

// So it is where no other admission has removed its record before: it is decided as a new event, whichever message carries it.
func TestAnEventInFlightFromTheFutureIsNew(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "10/30m", ""), day)
		clock, _ := limiter.micros(s)
		e := event("e", "a")
		for _, delivery := range []string{"another message", e.Delivery} {
			s.HSet(t.Context(), "{n}:inflight", slot(e), fmt.Sprintf("%d %s", clock+30*day.Microseconds(), delivery))
			limiter.want(ratelimit.Admitted, e)
			if n := s.ZCard(t.Context(), "{n}:category:a").Val(); n != 1 {
				t.Errorf("in flight for %q: %d slots are taken, expected its own", delivery, n)
			}
			s.FlushAll(t.Context())
		}
	})
}

// Whoever looks sees the clock that decides: it follows an admission that is no further ahead than the dedupe window.
func TestPeekFollowsTheClockOfDecisions(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "10/30m", ""), 30*day)
		limiter.admit(event("before", "a"))
		s.ZAdd(t.Context(), "{n}:global", zAt(s.score(t, "{n}:global", "a:before")+10*day.Microseconds(), "x"))
		s.ZAdd(t.Context(), "{n}:register", zAt(s.score(t, "{n}:global", "x"), " clock"))
		usages, err := limiter.Peek(t.Context(), "a")
		testkit.Check(t, err)
		if usages[0].Used != 1 || usages[1].Used != 0 {
			t.Errorf("%+v, expected what counts ten days later", usages)
		}
	})
}

func TestDamagedRefusalsLeaveNoHalfOfAnAnswer(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "100/10s")
		s.Set(t.Context(), "{n}:refusals", "somebody else's", 0)
		limiter.wantDigest(ratelimit.Granted, aChannel, "p1")
		limiter.wantDigest(ratelimit.Granted, aChannel, "p2")
		limiter.wantDigest(ratelimit.Granted, aChannel, "p3")
		limiter.answered("p1")
		limiter.answered("p2")
		limiter.answer(ratelimit.Answer{Channel: aChannel, Name: "p3", RetryAfter: time.Minute}, ratelimit.PausedChannel)
		limiter.paused(s, aChannel, time.Minute)
		limiter.paused(s, "", 0)
		if got := s.Get(t.Context(), "{n}:refusals").Val(); got != "somebody else's" {
			t.Errorf("the key holds %q now", got)
		}
	})
}

func TestNoPauseInRedisIsLongerThanSlackMayAskFor(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.anyLimiter(t)
		clock, _ := limiter.micros(s)
		for _, scope := range []string{"*", aChannel} {
			s.ZAdd(t.Context(), "{n}:pauses", zAt(clock+century.Microseconds(), scope))
		}
		limiter.paused(s, "", 0)
		limiter.wantDigest(ratelimit.Granted, aChannel, "p1")
		limiter.refused("p1", century) // what Slack asks for is bounded, too
		limiter.paused(s, "", ratelimit.LongestPause)
		limiter.paused(s, aChannel, ratelimit.LongestPause)
		s.advance(t, ratelimit.LongestPause+time.Second)
		limiter.paused(s, "", 0)
	})
}

func TestAProbeIsWaitedForNoLongerThanAPause(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.anyLimiter(t)
		clock, _ := limiter.micros(s)
		s.HSet(t.Context(), "{n}:probes", "?#a", fmt.Sprintf("%d %d other", clock, century.Microseconds()))
		limiter.wantDigest(ratelimit.Paced, "#a", "p1")
		s.advance(t, ratelimit.LongestPause+time.Second)
		limiter.wantDigest(ratelimit.Granted, "#a", "p1")
		s.HSet(t.Context(), "{n}:probes", "?#b", "garbage")
		limiter.wantDigest(ratelimit.Granted, "#b", "p2")
	})
}

func TestADamagedPaceHoldsUpItsChannelAlone(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "2/10s")
		clock, _ := limiter.micros(s)
		for i := range 5 {
			s.ZAdd(t.Context(), "{n}:pace:"+aChannel, zAt(clock+century.Microseconds(), fmt.Sprint("x", i)))
		}
		limiter.wantDigest(ratelimit.Granted, aChannel, "p1") // slots that far ahead are no posts
		s.Set(t.Context(), "{n}:pace:"+aChannel, "somebody else's", 0)
		permit := limiter.ask(ratelimit.Post{Channel: aChannel, Name: "p2", Longest: time.Second})
		want := ratelimit.Permit{Status: ratelimit.ChannelPaused, Wait: 5 * time.Second, Reason: ratelimit.DamagedKey{Key: "{n}:pace:" + aChannel}}
		if difference := cmp.Diff(want, permit); difference != "" {
			t.Errorf("(-want +got):\n%s", difference)
		}
		limiter.wantDigest(ratelimit.Granted, "C000OTHER", "p3")
		s.Del(t.Context(), "{n}:pace:"+aChannel)
		limiter.wantDigest(ratelimit.Granted, aChannel, "p2")
	})
}

// micros is the store's clock, and how far the clock that decides is ahead of it.
func (c caller) micros(s *store) (clock, lag int64) {
	c.t.Helper()
	if err := c.Ready(context.WithoutCancel(c.t.Context())); err != nil {
		c.t.Fatal(err)
	}
	return s.clock(c.t)
}

// Numbers that the scripts never give would become times without end, or before the beginning.
func TestARepliesTimeThatIsTooLongIsAnError(t *testing.T) {
	const far = ":9223372036854775807\r\n"
	for name, test := range map[string]struct {
		raw  string
		call func(caller) error
	}{
		"begin": {"*3\r\n:6\r\n" + far + "$0\r\n\r\n", func(c caller) error {
			_, err := c.Begin(c.t.Context(), ratelimit.Post{Channel: aChannel, Name: "p", Longest: time.Second})
			return err
		}},
		"answered": {"*3\r\n:1\r\n" + far + "$0\r\n\r\n", func(c caller) error {
			_, _, err := c.Answered(c.t.Context(), ratelimit.Answer{Channel: aChannel, Name: "p", RetryAfter: time.Second})
			return err
		}},
		"pauses": {"*2\r\n*2\r\n$1\r\n*\r\n" + far + "*0\r\n", func(c caller) error { _, err := c.Pauses(c.t.Context()); return err }},
	} {
		limiter := limiterAt(t, "redis://"+fake(t, map[string]string{"EVALSHA": test.raw, "EVAL": test.raw}))
		if err := test.call(limiter); err == nil || !strings.Contains(err.Error(), "unexpected reply from "+name+".lua") {
			t.Errorf("%s: %v, expected an error about its reply", name, err)
		}
	}
}

// aboutPermission matches the errors of Redis 7 and 8, and of Valkey.
var aboutPermission = regexp.MustCompile("can't run this command|NOPERM|no permissions to run")

// A permission that is missing is no damage.
func TestAMissingPermissionIsNoDamage(t *testing.T) {
	s := onProcess(t)
	for _, missing := range []string{"zcard", "zrevrange"} {
		s.server.SetUser(t, "word", "worker", "~*", "+@all", "-"+missing)
		limiter := limiterAt(t, "redis://worker:word@"+s.server.Addr)
		decisions, err := limiter.Admit(t.Context(), events(1, "e", "a"))
		if err == nil || decisions != nil || !aboutPermission.MatchString(err.Error()) {
			t.Errorf("without %s: %v, %v; expected an error about the permission", missing, decisions, err)
		}
		permit, err := limiter.Begin(t.Context(), ratelimit.Post{Channel: aChannel, Name: "p", Longest: time.Second})
		if missing == "zrevrange" && err == nil {
			t.Errorf("without %s: %+v, expected an error", missing, permit)
		}
	}
}

// Of the two keys of a category the one that is damaged is named.
func TestTheKeyOfACategoryThatIsOfAnotherTypeIsNamed(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("9/30m:1m", "5/10m:1m", ""), day)
		for _, key := range []string{"{n}:category:a", "{n}:buckets:category:a"} {
			s.Set(t.Context(), key, "somebody else's", 0)
			if got := limiter.one(event("e", "a")); got.Outcome != ratelimit.Damaged || got.Key != key {
				t.Errorf("%+v, expected %s as damaged", got, key)
			}
			s.Del(t.Context(), key)
		}
	})
}
