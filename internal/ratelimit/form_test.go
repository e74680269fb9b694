package ratelimit_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/internal/redistest"
	"notifier/internal/testkit"
	"notifier/lua"
)

// forms checks in which form the category "a" is stored: the number of entries in each of its sets.
func (s *store) forms(t testing.TB, exact, buckets int64) {
	t.Helper()
	for key, want := range map[string]int64{"{n}:category:a": exact, "{n}:buckets:category:a": buckets} {
		if got := s.ZCard(t.Context(), key).Val(); got != want {
			t.Errorf("%s has %d entries, expected %d\n%s", key, got, want, s.contents(t))
		}
	}
}

// A limit that gets a precision keeps what was admitted before.
func TestExactChargesBecomeBuckets(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		exact := s.limiter(t, testkit.Rules("100/30m", "5/10m", ""), day)
		precise := s.limiter(t, testkit.Rules("100/30m", "5/10m:10m", ""), day)
		for _, e := range events(4, "e", "a") {
			exact.want(ratelimit.Admitted, e)
		}
		if got := precise.one(costing(event("x", "a"), 2)); got.Outcome != ratelimit.Category || got.Used != 4 {
			t.Errorf("%+v, expected 4 used", got)
		}
		s.forms(t, 4, 0) // a refusal changes nothing
		precise.want(ratelimit.Admitted, event("f", "a"))
		if n := s.Exists(t.Context(), "{n}:category:a").Val(); n != 0 {
			t.Errorf("the exact set is left:\n%s", s.contents(t))
		}
		got := precise.one(event("g", "a"))
		if got.Outcome != ratelimit.Category || got.Used != 5 || got.RetryAfter < 9*time.Minute || got.RetryAfter >= 20*time.Minute {
			t.Errorf("%+v, expected 5 used", got)
		}
		if !precise.refund(event("e-2", "a")) {
			t.Error("nothing was refunded")
		}
		precise.want(ratelimit.Admitted, event("g", "a"))
	})
}

// A limit that loses its precision counts each bucket from its end, or from now where that has not come.
func TestBucketsBecomeExactCharges(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	precise := s.limiter(t, testkit.Rules("100/30m", "5/10m:1m", ""), day)
	exact := s.limiter(t, testkit.Rules("100/30m", "5/10m", ""), day)
	s.later(t, 0)
	precise.want(ratelimit.Admitted, costing(event("e", "a"), 2))
	s.advance(t, 70*time.Second)
	precise.want(ratelimit.Admitted, costing(event("f", "a"), 2))
	s.advance(t, time.Second)
	exact.want(ratelimit.Admitted, event("g", "a"))
	s.forms(t, 5, 0)
	if got, want := exact.one(event("h", "a")), 10*time.Minute-11*time.Second-time.Microsecond; got.Used != 5 || got.RetryAfter != want {
		t.Errorf("%+v, expected 5 used, and to wait for the end of the first bucket, %s", got, want)
	}
	s.advance(t, 9*time.Minute+49*time.Second)
	exact.want(ratelimit.Admitted, costing(event("h", "a"), 2))
	if got := exact.one(costing(event("i", "a"), 3)); got.RetryAfter != 11*time.Second { // all that was copied, and g
		t.Errorf("%+v, expected to wait until ten minutes after the change", got)
	}
}

// All of them, however many: replicas with a higher count go on counting them.
func TestAllBucketsBecomeExactCharges(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		precise := s.limiter(t, testkit.Rules("100/2h", "40/1h:1m", ""), day)
		exact := s.limiter(t, testkit.Rules("100/2h", "3/1m", ""), day)
		precise.want(ratelimit.Admitted, costing(event("e", "a"), 39))
		s.advance(t, 3*time.Minute)
		exact.want(ratelimit.Admitted, event("f", "a"))
		if got := precise.one(event("g", "a")); got.Outcome != ratelimit.Category || got.Used != 40 {
			t.Errorf("%+v, expected 40 used", got)
		}
	})
}

// What was copied from a bucket is nobody's: its event gives back its slots in the other scopes alone.
func TestARefundFindsNothingAmongWhatWasCopied(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		precise := s.limiter(t, testkit.Rules("100/30m", "5/10m:1m", ""), day)
		exact := s.limiter(t, testkit.Rules("100/30m", "5/10m", ""), day)
		e := costing(event("e", "a"), 4)
		precise.want(ratelimit.Admitted, e)
		exact.want(ratelimit.Admitted, event("f", "a"))
		if !exact.refund(e) {
			t.Error("nothing was refunded")
		}
		if n := s.ZCard(t.Context(), "{n}:global").Val(); n != 1 {
			t.Errorf("%d slots in the global scope, expected 1", n)
		}
		exact.want(ratelimit.Category, event("g", "a"))
	})
}

// Replicas that disagree keep the finer form while one that wants it admits something.
func TestReplicasThatDisagreeKeepEachEvent(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		precise := s.limiter(t, testkit.Rules("100/30m", "50/10m:5m", ""), day)
		exact := s.limiter(t, testkit.Rules("100/30m", "50/10m", ""), day)
		precise.want(ratelimit.Admitted, event("first", "a"))
		s.forms(t, 0, 1)
		for i := range 4 {
			exact.want(ratelimit.Admitted, event(fmt.Sprint("e", i), "a"))
			s.advance(t, time.Minute)
			precise.want(ratelimit.Admitted, event(fmt.Sprint("f", i), "a"))
		}
		s.forms(t, 9, 0)
		s.advance(t, 9*time.Minute) // the last word of the exact one is ten minutes old
		precise.want(ratelimit.Admitted, event("alone", "a"))
		if n := s.Exists(t.Context(), "{n}:category:a").Val(); n != 0 {
			t.Errorf("it is still exact:\n%s", s.contents(t))
		}
	})
}

// Of several that want it exact, the one with the longest window has the last word.
func TestTheLongestWindowThatWantsItExactDecides(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		precise := s.limiter(t, testkit.Rules("100/30m", "50/10m:5m", ""), day)
		long := s.limiter(t, testkit.Rules("100/30m", "50/10m", ""), day)
		short := s.limiter(t, testkit.Rules("100/30m", "50/1m", ""), day)
		precise.want(ratelimit.Admitted, event("first", "a"))
		long.want(ratelimit.Admitted, event("e1", "a"))
		short.want(ratelimit.Admitted, event("e2", "a"))
		s.advance(t, 2*time.Minute)
		precise.want(ratelimit.Admitted, event("e3", "a"))
		s.forms(t, 4, 0)
	})
}

// An exact limit of a replica that uses buckets for another one counts as well, from the first admission on.
func TestAnExactLimitBesideBucketsIsKeptExact(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		mixed := s.limiter(t, testkit.Rules("100/30m:1m", "50/10m", ""), day)
		precise := s.limiter(t, testkit.Rules("100/30m:1m", "50/10m:5m", ""), day)
		mixed.want(ratelimit.Admitted, event("e", "a"))
		precise.want(ratelimit.Admitted, event("f", "a"))
		s.forms(t, 2, 0)
	})
}

// A limit without buckets anywhere costs nothing: no wish is noted.
func TestWithoutBucketsNobodyWantsAnything(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "50/10m", ""), day)
		limiter.want(ratelimit.Admitted, event("e", "a"))
		for _, member := range s.ZRange(t.Context(), "{n}:register", 0, -1).Val() {
			if member == " exact {n}:category:a" || member == " exact {n}:global" {
				t.Errorf("it is noted that somebody wants it exact:\n%s", s.contents(t))
			}
		}
	})
}

// What a replica with shorter windows admits removes nothing that another one's buckets would still count.
func TestAnExactReplicaForgetsNothingThatAnotherCounts(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		precise := s.limiter(t, testkit.Rules("40/1h:1m", "3/1h:1m", ""), 10*time.Second)
		exact := s.limiter(t, testkit.Rules("9/10s", "9/10s", ""), 10*time.Second)
		precise.want(ratelimit.Admitted, costing(event("e", "a"), 2))
		s.advance(t, time.Second)
		exact.want(ratelimit.Admitted, event("f", "a"))
		s.advance(t, 2*time.Minute)
		exact.want(ratelimit.Admitted, event("g", "b"), event("h", "a"))
		if got := precise.one(event("i", "a")); got.Outcome != ratelimit.Category || got.Used != 4 {
			t.Errorf("%+v, expected 4 used in the category\n%s", got, s.contents(t))
		}
		overall := s.limiter(t, testkit.Rules("4/1h:1m", "30/1h:1m", ""), 10*time.Second)
		if got := overall.one(event("j", "c")); got.Outcome != ratelimit.Global || got.Used != 5 {
			t.Errorf("%+v, expected 5 used overall\n%s", got, s.contents(t))
		}
	})
}

// An admission alone changes the form: not an event that others of its batch have left no room.
func TestOnlyAnAdmissionChangesTheForm(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		exact := s.limiter(t, testkit.Rules("3/30m", "5/30m", ""), day)
		precise := s.limiter(t, testkit.Rules("3/30m", "5/30m:1m", ""), day)
		exact.want(ratelimit.Admitted, event("e", "a"), event("e", "b"))
		sameOutcomes(t, []ratelimit.Outcome{ratelimit.Admitted, ratelimit.Global}, precise.admit(event("f", "b"), event("g", "a")))
		s.forms(t, 1, 0)
	})
}

// What a bucket holds counts from the clock of decisions, which never goes back.
func TestBucketsBecomeExactChargesByTheClockOfDecisions(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	precise := s.limiter(t, testkit.Rules("100/30m", "5/10m:1m", ""), day)
	exact := s.limiter(t, testkit.Rules("100/30m", "5/10m", ""), day)
	s.later(t, 10*time.Second)
	precise.want(ratelimit.Admitted, costing(event("e", "a"), 2))
	s.advance(t, -5*time.Second)
	exact.want(ratelimit.Admitted, costing(event("f", "a"), 3))
	if got, want := exact.one(event("g", "a")), 10*time.Minute+5*time.Second; got.Outcome != ratelimit.Category || got.RetryAfter != want {
		t.Errorf("%+v, expected to wait %s", got, want)
	}
}

// Another replica may admit something between the question and the change of the form, or after it.
func TestAChangeOfTheFormKeepsToWhatOthersWant(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "5/10m", ""), day)
		limiter.want(ratelimit.Admitted, event("e", "a"))
		s.advance(t, 2*time.Minute)
		limiter.want(ratelimit.Admitted, event("f", "a"))
		clock, _ := s.clock(t)
		window, grain := (10 * time.Minute).Microseconds(), time.Minute.Microseconds()
		wanted := " exact {n}:category:a"
		reform := func(want, exact, buckets int64, arguments ...any) {
			t.Helper()
			keys := []string{"{n}:register", "{n}:category:a", "{n}:buckets:category:a"}
			got, err := redis.NewScript(lua.Reform).Run(t.Context(), s.Client, keys, arguments...).Int64()
			if err != nil || got != want {
				t.Errorf("reform.lua returned %d, %v, expected %d", got, err, want)
			}
			s.forms(t, exact, buckets)
			for _, key := range keys[1:] { // it expires a window after its newest entry
				newest := s.ZRevRangeWithScores(t.Context(), key, 0, 0).Val()
				if len(newest) > 0 && s.PExpireTime(t.Context(), key).Val().Milliseconds() != int64(newest[0].Score)/1000+window/1000+1 {
					t.Errorf("the expiry of %s does not show its window:\n%s", key, s.contents(t))
				}
			}
		}
		s.ZAdd(t.Context(), "{n}:register", zAt(clock+time.Hour.Microseconds(), wanted))
		reform(0, 2, 0, window, day.Microseconds(), grain)
		s.ZRem(t.Context(), "{n}:register", wanted)
		reform(1, 0, 2, window, day.Microseconds(), grain)
		reform(0, 0, 2, window, day.Microseconds(), grain)
		if announced := s.score(t, "{n}:register", " buckets"); announced < clock+2*window {
			t.Errorf("buckets are announced for %d us, expected two windows or more", announced-clock)
		}
		reform(1, 2, 0, window, day.Microseconds())
		if until := s.score(t, "{n}:register", wanted); until < clock+window {
			t.Errorf("the scope is wanted exact for %d us, expected a window or more", until-clock)
		}
		s.ZAdd(t.Context(), "{n}:register", zAt(clock+day.Microseconds(), " buckets"))
		s.ZRem(t.Context(), "{n}:register", wanted)
		reform(1, 0, 2, window, day.Microseconds(), grain)
		if announced := s.score(t, "{n}:register", " buckets"); announced != clock+day.Microseconds() {
			t.Errorf("buckets are announced for %d us, expected a day as before", announced-clock)
		}
	})
}

// What is in flight stays so when the set that has its ids becomes buckets.
func TestIDsStayInFlightWhenTheGlobalScopeBecomesBuckets(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		exact := s.limiter(t, testkit.Rules("100/30m", "10/30m", ""), day)
		precise := s.limiter(t, testkit.Rules("100/30m:1m", "10/30m:1m", ""), day)
		exact.want(ratelimit.Admitted, events(8, "e", "a")...)
		precise.want(ratelimit.Admitted, event("f", "b"))
		for _, e := range events(8, "e", "a") {
			precise.want(ratelimit.Duplicate, by("another message", e))
		}
	})
}

// A bucket that is made of exact charges is the one that they would have been counted in.
func TestExactChargesBecomeTheBucketsThatTheyBelongTo(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	exact := s.limiter(t, testkit.Rules("100/30m", "90/20m", ""), day)
	precise := s.limiter(t, testkit.Rules("100/30m", "90/10m:40s+90/20m:1m", ""), day)
	s.later(t, 0)
	for i := range 13 { // one in ten seconds, for two minutes
		exact.admit(event(fmt.Sprint("e", i), "a"))
		s.advance(t, 10*time.Second)
	}
	precise.want(ratelimit.Admitted, event("f", "a"))
	var got []string
	for _, entry := range s.ZRangeWithScores(t.Context(), "{n}:buckets:category:a", 0, -1).Val() {
		fields := strings.Fields(entry.Member.(string))
		began, err := strconv.ParseInt(fields[2], 10, 64)
		testkit.Check(t, err)
		got = append(got, fmt.Sprintf("%s to %s: %s to %s", time.UnixMicro(began).UTC().Format("04:05"),
			time.UnixMicro(int64(entry.Score)+1).UTC().Format("04:05.999999"), fields[0], fields[1]))
	}
	want := []string{"00:00 to 00:40: 0 to 4", "00:40 to 01:00: 4 to 6", "01:00 to 01:20: 6 to 8", "01:20 to 02:00: 8 to 12", "02:00 to 02:40: 12 to 14"}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Errorf("(-want +got):\n%s", difference)
	}
}

// What was in flight before the global scope was counted in buckets is forgotten when its window has passed, as if it had been
// admitted into them.
func TestWhatIsInFlightIsForgottenInTimeAfterAChangeOfForm(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		exact := s.limiter(t, testkit.Rules("100/30m", "10/30m", ""), day)
		precise := s.limiter(t, testkit.Rules("100/30m:1m", "10/30m", ""), day)
		e := event("e", "a")
		exact.want(ratelimit.Admitted, e)
		admitted := s.score(t, "{n}:global", slot(e))
		precise.want(ratelimit.Admitted, event("f", "b")) // changes the form
		if got := s.score(t, "{n}:register", slot(e)); got != admitted {
			t.Errorf("the register has e at %d, expected its admission at %d", got, admitted)
		}
		for i := range 4 { // the keys stay
			s.advance(t, 10*time.Minute)
			precise.want(ratelimit.Admitted, event(fmt.Sprint("g", i), "b"))
		}
		if s.HExists(t.Context(), "{n}:inflight", slot(e)).Val() {
			t.Errorf("e is in flight after 40 minutes:\n%s", s.contents(t))
		}
	})
}

// A replica that wants each event finds what another one has counted in buckets for as long as that counts.
func TestBucketsAreFoundForTheirWholeWindow(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		precise := s.limiter(t, testkit.Rules("100/30m", "5/10m:1m", ""), day)
		exact := s.limiter(t, testkit.Rules("100/30m", "5/10m", ""), day)
		precise.want(ratelimit.Admitted, events(5, "e", "a")...)
		s.advance(t, 9*time.Minute)
		if got := exact.one(event("f", "a")); got.Outcome != ratelimit.Category || got.Used != 5 {
			t.Errorf("%+v, expected a refusal with 5 used: they are nine minutes old", got)
		}
	})
}
