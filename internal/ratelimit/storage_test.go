package ratelimit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

func zAt(score int64, member string) redis.Z { return redis.Z{Score: float64(score), Member: member} }

// Nothing is charged, stored, removed or kept alive longer by events that are not admitted, however many
// come.
func TestRefusedEventsStoreNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("8/30m+8/20m", "4/10m", "short=1/1m"), day)
		sent := event("sent", "a")
		limiter.admit(sent, event("flying", "a"), event("s", "short"))
		limiter.sent(sent)
		s.advance(t, 2*time.Minute) // "short" has an entry that is out of its window
		limiter.admit(events(3, "b", "b")...)
		limiter.admit(events(2, "a", "a")...)

		s.advance(t, time.Second)
		before := s.contents(t)
		storm := append(events(500, "storm", "a"), sent, by("another message", event("flying", "a")), event("flying", "a"))
		storm = append(storm, costing(event("big", "b"), 2), costing(event("big too", "new"), 5), costing(event("bigger", "short"), 2))
		for i, decision := range limiter.admit(storm...) {
			if decision.Verdict == ratelimit.Admitted && storm[i].ID != "flying" { // which was admitted before
				t.Fatalf("%s: %+v", storm[i].ID, decision)
			}
		}
		s.unchanged(t, before)
	})
}

func TestEveryKeyExpires(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/10m+5/1m", "slow=5/2h,fast=5/50s"), day)
		e, f := event("e", "a"), event("f", "a")
		limiter.admit(e, f, event("s", "slow"), event("q", "fast"))
		limiter.sent(e)
		limiter.refund(f)
		limiter.postsTo("#a", "p0")
		limiter.answer(ratelimit.Answer{Channel: "#a", Name: "p0", RetryAfter: time.Minute}, ratelimit.PausedChannel)
		limiter.answer(ratelimit.Answer{Channel: "#late", Name: "p1"}, ratelimit.NoPause) // its slot has expired
		bounds := map[string]time.Duration{
			"{n}:global": 30 * time.Minute, "{n}:inflight": day, "{n}:sent": day,
			"{n}:pauses": 61 * time.Minute, "{n}:probes": 61 * time.Minute, "{n}:pace:#a": 3 * time.Hour, "{n}:pace:#late": 3 * time.Hour,
			"{n}:categories": day + 2*time.Hour, "{n}:meta": 32 * day,
			"{n}:category:a": 10 * time.Minute, "{n}:category:slow": 2 * time.Hour, "{n}:category:fast": 50 * time.Second,
		}
		names := s.Keys(t.Context(), "*").Val()
		if len(names) != len(bounds) {
			t.Errorf("keys %v, expected %d", names, len(bounds))
		}
		for _, name := range names {
			left, bound := s.PTTL(t.Context(), name).Val(), bounds[name]
			if left <= 0 || left > bound+2*time.Millisecond || left < bound-10*time.Second {
				t.Errorf("%s expires in %s, expected %s", name, left, bound)
			}
		}
	})
}

// A category that is always busy keeps its key alive; what is out of its window goes with the next
// admissions, a bounded number with each of them.
func TestAdmissionsTrimTheLog(t *testing.T) {
	eachLimiter(t, "5000/30m", "5000/10m", func(t *testing.T, s *store, limiter caller) {
		for i := range 5 {
			limiter.admits(costing(event(fmt.Sprint("old", i), "a"), 500))
		}
		for i := range 8 {
			s.advance(t, 6*time.Minute)
			limiter.admits(event(fmt.Sprint("next", i), "a"))
			if n := s.count(t, "{n}:category:a"); i == 1 && n != 2502-1002 {
				t.Errorf("%d entries after one admission, expected that 1002 have been removed", n)
			}
		}
		if global, category := s.count(t, "{n}:global"), s.count(t, "{n}:category:a"); global != 5 || category != 2 {
			t.Errorf("%d entries in the global set and %d in the category's, expected 5 and 2", global, category)
		}
	})
}

func TestSentIDsAreForgotten(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), 2*time.Hour)
		for i := range 6 { // an hour apart, so that the key itself never expires
			e := event(fmt.Sprint("e", i), "a")
			limiter.admits(e)
			limiter.sent(e)
			s.advance(t, time.Hour)
		}
		ids := s.ZRange(t.Context(), "{n}:sent", 0, -1).Val()
		if len(ids) != 3 || ids[0] != "a:e4" || ids[1] != "a:e5" { // the third is the member of dashes
			t.Errorf("%q are kept, expected e4 and e5", ids)
		}
	})
}

func TestRestartKeepsWhatIsOnDisk(t *testing.T) {
	t.Parallel()
	s := onProcess(t, "--appendonly", "yes", "--appendfsync", "always")
	limiter := s.limiter(t, kit.Rules("2/30m", "2/30m", ""), day)
	e, f := event("e", "a"), event("f", "a")
	limiter.admit(e, f)
	limiter.sent(f)
	before := s.contents(t)

	s.server.Stop(t)
	if decisions, err := limiter.Admit(t.Context(), []ratelimit.Request{e}); err == nil || decisions != nil {
		t.Errorf("with the server stopped: %v, %v", decisions, err)
	}
	s.server.Restart(t)
	kit.EventuallyNil(t, func() error { return limiter.Ready(t.Context()) })
	if difference := cmp.Diff(before, s.contents(t)); difference != "" {
		t.Errorf("after the restart (-before +after):\n%s", difference)
	}
	limiter.admits(e)
	limiter.duplicates(f)
	limiter.want(ratelimit.Category, event("g", "a"))
}

func TestLargestBatchIsDecidedInOrder(t *testing.T) {
	eachLimiter(t, "500/30m", "1/30m", func(t *testing.T, s *store, limiter caller) {
		batch := make([]ratelimit.Request, ratelimit.MaxBatch)
		for i := range batch {
			batch[i] = event(fmt.Sprint("e", i), fmt.Sprint("c", i%900)) // nearly as many categories
		}
		batch[950] = by("another message", batch[7])
		for i, decision := range limiter.admit(batch...) {
			want := ratelimit.Admitted
			switch {
			case i == 950:
				want = ratelimit.Duplicate
			case i >= 900: // that category has its one
				want = ratelimit.Category // of two alike, the category's
			case i >= 500:
				want = ratelimit.Global
			}
			if decision.Verdict != want {
				t.Fatalf("event %d: %+v, expected outcome %d", i, decision, want)
			}
		}
		tooMany := append(batch, event("one more", "c"))
		if got, err := limiter.Admit(t.Context(), tooMany); err == nil || got != nil {
			t.Errorf("%d decisions for %d events, %v", len(got), len(tooMany), err)
		}
	})
}

func TestCostlyEventTakesAllItsSlots(t *testing.T) {
	eachLimiter(t, "1900/30m", "1800/30m", func(t *testing.T, s *store, limiter caller) {
		big := costing(event(strings.Repeat("long", 100), "a"), 1000)
		limiter.admits(big)
		s.charged(t, 1000)
		if got := limiter.one(costing(event("x", "a"), 801)); got.Verdict != ratelimit.Category || got.Used != 1000 {
			t.Errorf("%+v", got)
		}
		// a busy host may make the client ask twice, and the second answer is that nothing is left
		limiter.refund(big)
		s.Del(t.Context(), "{n}:categories", "{n}:meta") // they show only that there was an admission, and when
		if left := s.contents(t); left != "" {
			t.Errorf("a refund left something behind:\n%s", left)
		}
	})
}
