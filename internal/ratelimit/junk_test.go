package ratelimit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/testkit"
)

// put adds entries with one score, as somebody else who may write to Redis would.
func (s *store) put(t testing.TB, key string, score any, names ...string) {
	t.Helper()
	for _, name := range names {
		testkit.Check(t, s.Do(t.Context(), "ZADD", key, score, name).Err())
	}
}

// A bucket whose name says what no bucket can hold concerns its category alone.
func TestABucketThatCannotBeCountedHoldsUpItsCategoryAlone(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "2/10m:1m", ""), day)
		for _, name := range []string{"", "x", "1 2", "1 2 3 4", "-1 2 3", "9 2 3", "0 99999999999999999999 5", "5 " + strings.Repeat("9", 400) + " 5",
			strings.Repeat("9", 400) + " " + strings.Repeat("9", 400) + " 5", "nan nan nan", "0 1e3 5"} {
			if s.embedded != nil && strings.Contains(name, "99999") { // its Lua does not read such numbers
				continue
			}
			t.Run(fmt.Sprintf("%.24q", name), func(t *testing.T) {
				s.FlushAll(t.Context())
				limiter.want(ratelimit.Admitted, event("first", "a"))
				s.put(t, "{n}:buckets:category:a", s.score(t, "{n}:register", " clock")+120_000_000, name)
				got := limiter.admit(event("e", "a"), event("f", "b"), costing(event("g", "a"), 3))
				sameOutcomes(t, []ratelimit.Outcome{ratelimit.Damaged, ratelimit.Admitted, ratelimit.Damaged}, got)
				usages, err := limiter.Peek(t.Context(), "a", "b")
				testkit.Check(t, err)
				if !usages[1].Damaged || usages[2].Damaged {
					t.Errorf("%+v, expected category a damaged, and b not", usages)
				}
			})
		}
	})
}

// An older bucket with such a name may cost room, but every event is decided.
func TestAnOlderBucketThatCannotBeCountedLeavesEveryEventDecided(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "2/10m:1m", ""), day)
		for _, score := range []int64{-5, 0, 5, -1} { // -1: just before the newest
			for _, name := range []string{"", "x", "1 2 3 4", "0 999999 5", "99999999999999999999 5 5", strings.Repeat("9", 400) + " 1 1"} {
				if s.embedded != nil && strings.HasPrefix(name, "99999") {
					continue
				}
				s.FlushAll(t.Context())
				limiter.want(ratelimit.Admitted, costing(event("first", "a"), 2))
				at := score
				if score == -1 {
					at = s.score(t, "{n}:register", " clock") - 1_000_000
				}
				s.put(t, "{n}:buckets:category:a", at, name)
				decisions, err := limiter.Admit(t.Context(), []ratelimit.Request{event("e", "a"), event("f", "b"), costing(event("g", "a"), 3)})
				if err != nil || decisions[1].Outcome != ratelimit.Admitted || decisions[2].Outcome != ratelimit.Category || decisions[2].RetryAfter < 0 {
					t.Errorf("%.24q at %d: %+v, %v", name, score, decisions, err)
				}
				if _, err := limiter.Peek(t.Context(), "a"); err != nil {
					t.Errorf("%.24q at %d: %v", name, score, err)
				}
			}
		}
	})
}

// Nor does it become a time before now at which there would be room.
func TestAnOlderBucketThatCannotBeCountedFreesNothingInThePast(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "2/10m:1m", ""), day)
		limiter.want(ratelimit.Admitted, event("e", "a"))
		s.advance(t, 2*time.Minute)
		limiter.want(ratelimit.Admitted, event("f", "a"))
		s.put(t, "{n}:buckets:category:a", 5, "0 999999 5")
		limiter.want(ratelimit.Category, event("g", "a"))
		refusal := s.latest().([]any)[3].([]any)[0].([]any)
		if wait := refusal[3]; wait != any(int64(0)) {
			t.Errorf("%v us to wait, expected none", wait)
		}
	})
}

// Where the global scope has such a bucket nothing can be decided, and the error names the key.
func TestAGlobalBucketThatCannotBeCountedIsNamed(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m:1m", "10/30m", ""), day)
		s.put(t, "{n}:buckets:global", 1, "x")
		if _, err := limiter.Admit(t.Context(), []ratelimit.Request{event("e", "a")}); err == nil || !strings.Contains(err.Error(), `"{n}:buckets:global"`) {
			t.Errorf("%v, expected an error that names the key", err)
		}
	})
}

// What the register holds besides is bounded: no mark stops anything, and no key is kept for ever.
func TestMarksOfTheRegisterThatNobodyCouldHaveMade(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		precise := s.limiter(t, testkit.Rules("100/30m", "5/10m:1m", ""), day)
		exact := s.limiter(t, testkit.Rules("100/30m", "5/10m", ""), day)
		for _, mark := range []string{" clock", " kept", " buckets", " exact {n}:category:a", "", "x"} {
			for _, score := range []string{"+inf", "1e300", "1e17", "-inf", "-5", "0.5"} {
				if s.embedded != nil && score != "-5" && score != "0.5" { // its Lua does not read them
					continue
				}
				s.FlushAll(t.Context())
				precise.ForgetIndexed()
				exact.ForgetIndexed()
				precise.want(ratelimit.Admitted, event("first", "a"))
				s.put(t, "{n}:register", score, mark)
				for i, limiter := range []caller{exact, precise, exact, precise} {
					e := event(fmt.Sprint("e", i), "a")
					if decisions, err := limiter.Admit(t.Context(), []ratelimit.Request{e}); err != nil || decisions[0].Outcome != ratelimit.Admitted {
						t.Fatalf("%q at %s: %+v, %v", mark, score, decisions, err)
					}
					limiter.sent(e)
				}
				for _, key := range s.Keys(t.Context(), "*").Val() {
					if left := s.PTTL(t.Context(), key).Val(); left < 0 || left > 100*day {
						t.Errorf("%q at %s: %s is kept for %s", mark, score, key, left)
					}
				}
			}
		}
	})
}

// A bucket that claims more slots than any limit has is not copied slot by slot: that would stop Redis.
func TestABucketOfTooManySlotsIsNotCopied(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		precise := s.limiter(t, testkit.Rules("100/30m", "5/10m:1m", ""), day)
		exact := s.limiter(t, testkit.Rules("100/30m", "5/10m", ""), day)
		for _, slots := range []string{"1000001", "9000000000000000"} {
			s.FlushAll(t.Context())
			precise.want(ratelimit.Admitted, event("first", "a"))
			s.put(t, "{n}:buckets:category:a", 5, "0 "+slots+" 5")
			exact.want(ratelimit.Admitted, event("e", "a"))
			s.forms(t, 2, 0)
		}
	})
}

// Both forms of a scope at once: the register was removed, and with it what says where to look.
func TestAScopeInBothFormsBecomesOne(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		precise := s.limiter(t, testkit.Rules("100/30m", "5/10m:1m", ""), day)
		exact := s.limiter(t, testkit.Rules("100/30m", "5/10m", ""), day)
		precise.want(ratelimit.Admitted, event("first", "a"))
		s.Del(t.Context(), "{n}:register")
		exact.want(ratelimit.Admitted, event("second", "a"))
		s.forms(t, 1, 1)
		precise.want(ratelimit.Admitted, event("third", "a"))
		exact.want(ratelimit.Admitted, event("fourth", "a"))
		s.forms(t, 4, 0)
		exact.want(ratelimit.Admitted, event("fifth", "a"))
		exact.want(ratelimit.Category, event("sixth", "a"))
	})
}

// A category in buckets whose exact key is of another type holds up itself alone.
func TestAnExactKeyOfAnotherTypeBehindBucketsHoldsUpItsCategoryAlone(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		precise := s.limiter(t, testkit.Rules("100/30m", "5/10m:1m", ""), day)
		exact := s.limiter(t, testkit.Rules("100/30m", "5/10m", ""), day)
		precise.want(ratelimit.Admitted, event("first", "a"))
		s.Set(t.Context(), "{n}:category:a", "somebody else's", 0)
		sameOutcomes(t, []ratelimit.Outcome{ratelimit.Damaged, ratelimit.Admitted}, exact.admit(event("e", "a"), event("f", "b")))
	})
}

// Digits without an end are read once, not once for each of them.
func TestALongRecordIsReadAtOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		if s.embedded != nil {
			t.Skip("its Lua does not read such numbers")
		}
		limiter := s.limiter(t, testkit.Rules("100/30m", "5/10m:1m", ""), day)
		e, f, long := event("e", "a"), event("f", "a"), strings.Repeat("9", 1<<18)
		limiter.want(ratelimit.Admitted, f)
		s.put(t, "{n}:buckets:category:a", s.score(t, "{n}:register", " clock"), long+"x")
		began := time.Now()
		limiter.refund(f)
		s.HSet(t.Context(), "{n}:inflight", slot(e), long)
		limiter.refund(e)
		limiter.admit(e)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s, expected a moment", took)
		}
	})
}

// A clock that was years ahead leaves no key that is kept for years from then on.
func TestAClockThatWasYearsAheadKeepsNothingForYears(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		for _, category := range []string{"2/30m", "2/30m:1m"} {
			s.FlushAll(t.Context())
			limiter := s.limiter(t, testkit.Rules("2/30m", category, ""), day)
			long := s.limiter(t, testkit.Rules("9/2h:1m", "9/2h:1m", ""), day)
			limiter.want(ratelimit.Admitted, event("e", "a"))
			for _, key := range s.Keys(t.Context(), "*").Val() { // as if all of it had been written then
				s.PExpireAt(t.Context(), key, time.Now().Add(century))
			}
			for _, l := range []caller{limiter, long, limiter} {
				l.want(ratelimit.Admitted, event(fmt.Sprint("x", s.DBSize(t.Context()).Val()), fmt.Sprint("b", s.DBSize(t.Context()).Val())))
				s.advance(t, time.Hour)
			}
			limiter.want(ratelimit.Admitted, event("f", "a"))
			for _, key := range []string{"{n}:category:a", "{n}:buckets:category:a", "{n}:register"} {
				if left := s.PTTL(t.Context(), key).Val(); left > 100*day {
					t.Errorf("%s: %s is kept for %s\n%s", category, key, left, s.contents(t))
				}
			}
		}
	})
}
