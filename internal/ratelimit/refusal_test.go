package ratelimit_test

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// expectRefusal compares a refusal whole. frees is the time, by the server's clock, at which the event would
// fit.
func expectRefusal(t *testing.T, s *store, got ratelimit.Decision, verdict ratelimit.Verdict, tier string, used int, frees int64) {
	t.Helper()
	clock, _ := s.clock(t)
	want := ratelimit.Decision{
		Verdict: verdict, Tier: mustParse(tier)[0], Used: used,
		RetryAfter: time.Duration(frees-clock) * time.Microsecond,
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Errorf("(-want +got):\n%s", difference)
	}
}

func TestRefusalNamesTheTierThatFreesLast(t *testing.T) {
	const minute = int64(60_000_000)
	tests := map[string]struct {
		global, category string
		verdict          ratelimit.Verdict
		tier             string
		frees            int64 // after the only admission
	}{
		"two tiers, the longer first":         {"9/1h", "1/10m+1/5m", ratelimit.Category, "1/10m", 10 * minute},
		"two tiers, the longer last":          {"9/1h", "1/5m+1/10m", ratelimit.Category, "1/10m", 10 * minute},
		"two tiers, only the shorter is full": {"9/1h", "2/10m+1/5m", ratelimit.Category, "1/5m", 5 * minute},
		"three tiers of each":                 {"1/1m+1/7m+1/3m", "1/2m+1/6m+1/4m", ratelimit.Global, "1/7m", 7 * minute},
		"the global tier between category's":  {"1/5m", "1/4m+1/6m", ratelimit.Category, "1/6m", 6 * minute},
	}
	eachStore(t, func(t *testing.T, s *store) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				s.FlushAll(t.Context())
				limiter := s.limiter(t, kit.Rules(test.global, test.category, ""), day)
				limiter.admits(event("first", "a"))
				s.advance(t, 13*time.Second)
				admitted := s.takenAt(t, "{n}:global", "a:first")
				expectRefusal(t, s, limiter.one(event("second", "a")), test.verdict, test.tier, 1, admitted+test.frees)
			})
		}
	})
}

// Slots that the batch itself has taken are the newest ones and free a window from now.
func TestRefusalCountsItsOwnBatch(t *testing.T) {
	eachLimiter(t, "100/1h", "3/10m", func(t *testing.T, s *store, limiter caller) {
		limiter.admit(event("old", "a"))
		s.advance(t, time.Minute)
		decisions := limiter.admit(event("n1", "a"), event("n2", "a"), event("x", "a"), costing(event("y", "a"), 2))
		frees := (10 * time.Minute).Microseconds()
		expectRefusal(t, s, decisions[2], ratelimit.Category, "3/10m", 3, s.takenAt(t, "{n}:category:a", "a:old")+frees)
		expectRefusal(t, s, decisions[3], ratelimit.Category, "3/10m", 3, s.takenAt(t, "{n}:category:a", "a:n1")+frees)
	})
}

func TestRetryAfterIsWhenTheCostFits(t *testing.T) {
	eachLimiter(t, "100/1h", "4/10m", func(t *testing.T, s *store, limiter caller) {
		ids := []string{"e1", "e2", "e3", "e4"}
		for _, id := range ids {
			limiter.admits(event(id, "a"))
			s.advance(t, time.Minute)
		}
		for cost := 1; cost <= 4; cost++ {
			leaves := s.takenAt(t, "{n}:category:a", "a:"+ids[cost-1]) // so many must leave
			got := limiter.one(costing(event("x", "a"), cost))
			expectRefusal(t, s, got, ratelimit.Category, "4/10m", 4, leaves+(10*time.Minute).Microseconds())
		}
		wait := limiter.one(costing(event("x", "a"), 3)).RetryAfter
		if s.embedded != nil {
			s.advance(t, wait-time.Microsecond)
			limiter.want(ratelimit.Category, costing(event("x", "a"), 3))
			s.advance(t, time.Microsecond)
		} else {
			s.advance(t, wait)
		}
		limiter.admits(costing(event("x", "a"), 3))
	})
}

func TestCostAboveALimitNeverFits(t *testing.T) {
	eachLimiter(t, "10/1h", "5/1h+2/1m", func(t *testing.T, s *store, limiter caller) {
		want := ratelimit.Decision{Verdict: ratelimit.Category, Tier: mustParse("2/1m")[0], Never: true}
		if difference := cmp.Diff(want, limiter.one(costing(event("x", "a"), 3))); difference != "" {
			t.Errorf("into the empty set (-want +got):\n%s", difference)
		}
		refusal := s.latest().([]any)[4].([]any)[0].([]any)
		if refusal[3] != int64(-1) {
			t.Errorf("the script answers %v, expected that an event of this cost never fits: -1", refusal)
		}
		limiter.admit(events(2, "e", "a")...)
		want.Used = 2
		if difference := cmp.Diff(want, limiter.one(costing(event("x", "a"), 3))); difference != "" {
			t.Errorf("(-want +got):\n%s", difference)
		}
	})
}

func TestCostBelowOneIsAnError(t *testing.T) {
	eachLimiter(t, "10/1h", "5/1h", func(t *testing.T, s *store, limiter caller) {
		for _, cost := range []int{0, -1} {
			decisions, err := limiter.Admit(t.Context(), []ratelimit.Request{event("good", "a"), costing(event("bad", "a"), cost)})
			if err == nil || decisions != nil {
				t.Errorf("cost %d: %v, %v; expected an error", cost, decisions, err)
			}
		}
		if got := s.contents(t); got != "" {
			t.Errorf("stored:\n%s", got)
		}
	})
}

// Each tier is counted once in a call, however many events ask and whatever they cost.
func TestTiersAreCountedOncePerCall(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		if s.embedded != nil {
			t.Skip("it counts no commands")
		}
		rules := grouped("20/30m+15/10m", "6/30m+5/10m+4/1m", "9/30m")
		rules.Reserve = map[string]int{"payments": 3, "deploys": 2}
		limiter := s.limiter(t, rules, day)
		limiter.admits(events(4, "e", "a")...)
		storm := func(n int) []ratelimit.Request {
			batch := events(n, fmt.Sprint("storm", n), "a")
			for i := range batch {
				batch[i].Cost += i % 2
			}
			return batch
		}
		var calls [2]int
		for i, n := range []int{16, 512} {
			kit.Check(t, s.ConfigResetStat(t.Context()).Err())
			decisions := limiter.admit(storm(n)...)
			calls[i] = commandsCalled(t, s)
			for j, decision := range decisions {
				if decision.Verdict != ratelimit.Category || decision.Tier.String() != []string{"4/1m", "5/10m"}[j%2] || decision.Used != 4 {
					t.Fatalf("a cost of %d: %+v", 1+j%2, decision)
				}
			}
		}
		if calls[1] > calls[0] || calls[0] > 60 {
			t.Errorf("%d commands for 16 events and %d for 512, expected the same few", calls[0], calls[1])
		}
	})
}

// What the global limit refuses of many categories is one refusal in the reply, for each cost.
func TestCategoriesShareAGlobalRefusal(t *testing.T) {
	eachLimiter(t, "2/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
		limiter.admits(events(2, "e", "a")...)
		batch := slices.Concat(events(3, "x", "a"), events(3, "x", "b"), events(3, "x", "c"))
		batch[8].Cost = 2
		limiter.admit(batch...)
		reply, ok := s.latest().([]any)
		if !ok || len(reply) != 7 || len(reply[4].([]any)) != 2 {
			t.Errorf("%v, expected two refusals", reply)
		}
	})
}

var commandStatistics = regexp.MustCompile(`cmdstat_(?:z|exists|h)[a-z]*:calls=(\d+)`)

// commandsCalled is how many commands on sorted sets and hashes have run since the statistics were reset.
func commandsCalled(t *testing.T, s *store) int {
	t.Helper()
	info, err := s.Info(t.Context(), "commandstats").Result()
	kit.Check(t, err)
	calls := 0
	for _, found := range commandStatistics.FindAllStringSubmatch(info, -1) {
		calls += atoi(t, found[1])
	}
	return calls
}
