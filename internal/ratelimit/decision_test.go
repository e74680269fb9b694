package ratelimit_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

func TestCostBelowOneIsAnError(t *testing.T) {
	eachLimiter(t, "10/1h", "5/1h", func(t *testing.T, s *store, limiter caller) {
		for _, cost := range []int{0, -1} {
			decisions, err := limiter.Admit(t.Context(), []ratelimit.Request{event("good", "a"), costing(event("bad", "a"), cost)})
			if err == nil || decisions != nil || !strings.Contains(err.Error(), "expected 1 or more") {
				t.Errorf("cost %d: %v, %v; expected an error that names the least cost", cost, decisions, err)
			}
			if decision, err := limiter.DryRun(t.Context(), "a", cost); err == nil {
				t.Errorf("a dry run of cost %d: %+v, expected an error", cost, decision)
			}
		}
		if got := s.contents(t); got != "" {
			t.Errorf("stored:\n%s", got)
		}
	})
}

// A call counts each tier once, for any number of events and any costs.
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

// A global refusal appears once in the reply for each cost, not for each category.
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

// commandsCalled counts EXISTS and the commands on sorted sets and hashes since the statistics were reset.
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

// grouped returns rules with a limit for each group.
func grouped(global, category, group string) ratelimit.Rules {
	rules := kit.Rules(global, category, "")
	rules.Group = mustParse(group)
	return rules
}

// reserving returns rules with reservations in the global limit.
func reserving(global, category string, reserve map[string]int) ratelimit.Rules {
	rules := kit.Rules(global, category, "")
	rules.Reserve = reserve
	return rules
}

// In the middle of a batch, an event of a category with a reservation is decided again and refused. If it
// releases its old slot, one more reserved slot is unused.
func TestReserveFollowsASecondRefusal(t *testing.T) {
	for name, c := range map[string]struct {
		posted         bool
		used, reserved int
	}{
		"released": {false, 4, 2},
		"kept":     {true, 5, 1},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				rules := reserving("6/2h", "20/2h", map[string]int{"payments": 3})
				rules.Overrides = pattern.MustTable(map[string]ratelimit.Limit{"payments": mustParse("1/10m")})
				limiter := s.limiter(t, rules, day)
				again := event("again", "payments")
				limiter.admits(again)
				if c.posted {
					limiter.posts(1, again, "", "p1")
				}
				s.advance(t, 11*time.Minute)
				limiter.admits(event("full", "payments"))
				got := limiter.admit(append([]ratelimit.Request{event("first", "noise"), again}, events(3, "n", "noise")...)...)
				if got[1].Verdict != ratelimit.Category || got[3].Verdict != ratelimit.Admitted {
					t.Errorf("%+v, expected that the second event alone is refused before the last", got)
				}
				if last := got[4]; last.Verdict != ratelimit.Global || last.Used != c.used || last.Reserved != c.reserved {
					t.Errorf("%+v, expected a refusal with %d used and %d reserved", last, c.used, c.reserved)
				}
			})
		})
	}
}

// Each tier counts the use of a reservation in its own window: here the first tier still reserves all slots,
// the second one none.
func TestReserveOfEachTier(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := reserving("10/1m+20/1h", "20/1h", map[string]int{"payments": 5})
		limiter := s.limiter(t, rules, day)
		for i, category := range []string{"payments", "a", "a", "a"} {
			limiter.admits(costing(event(fmt.Sprint("e", i), category), 5))
			s.advance(t, 2*time.Minute)
		}
	})
}

// Each tier with a COUNT above the sum of all reservations reserves slots. ReservedTier returns the longest
// of these tiers.
func TestReservedTier(t *testing.T) {
	for global, want := range map[string]string{
		"100/30m": "100/30m", "1/5s+100/30m": "100/30m", "100/30m+1/5s": "100/30m", "50/10m+100/30m+20/1m": "100/30m", "100/30m+7/24h": "100/30m",
		"8/1h": "8/1h", "90/1h+80/1h:fixed": "80/1h:fixed",
	} {
		rules := reserving(global, "1/1h", map[string]int{"payments": 5, "deploys": 2})
		if got := rules.ReservedTier().String(); got != want {
			t.Errorf("%s: %s, expected %s", global, got, want)
		}
	}
	for _, rules := range []ratelimit.Rules{reserving("7/1h", "1/1h", map[string]int{"payments": 7}), reserving("7/1h", "1/1h", nil)} {
		if got := rules.ReservedTier(); got != (ratelimit.Tier{}) {
			t.Errorf("%s, expected none", got)
		}
	}
}

func (c caller) dryRun(category string, cost int) ratelimit.Decision {
	c.t.Helper()
	decision, err := c.DryRun(c.t.Context(), category, cost)
	kit.Check(c.t, err)
	return decision
}

// A dry run is never a duplicate, even if an event with an empty id was admitted or sent.
func TestDryRunKnowsNoEvent(t *testing.T) {
	eachLimiter(t, "9/1h", "9/1h", func(t *testing.T, _ *store, limiter caller) {
		limiter.admits(event("", "flying"), event("", "sent"))
		kit.Check(t, limiter.Sent(t.Context(), event("", "sent")))
		for _, category := range []string{"flying", "sent"} {
			if got := limiter.dryRun(category, 1); got.Verdict != ratelimit.Admitted {
				t.Errorf("%s: %+v, expected an admission", category, got)
			}
		}
	})
}

// A dry run without a category shows the room for categories without a reservation.
func TestDryRunOfNoCategory(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := reserving("10/30m", "2/30m", map[string]int{"payments": 3})
		rules.Group = mustParse("3/30m")
		limiter := s.limiter(t, rules, day)
		for _, category := range []string{"a", "b", "c"} {
			limiter.admits(events(2, category, category)...)
		}
		if got := limiter.dryRun("", 1); got.Verdict != ratelimit.Admitted {
			t.Errorf("%+v, expected an admission", got)
		}
		limiter.admits(event("d", "d"))
		if got := limiter.dryRun("", 1); got.Verdict != ratelimit.Global || got.Used != 7 || got.Reserved != 3 || !got.AtLeast {
			t.Errorf("%+v, expected a refusal with 7 used and 3 reserved", got)
		}
	})
}

// charged expects a number of slots in the global log and in the log of category "a".
func (s *store) charged(t *testing.T, want int) {
	t.Helper()
	for _, key := range []string{"{n}:global", "{n}:category:a"} {
		if got := s.count(t, key); got != want {
			t.Fatalf("%s has %d slots taken, expected %d", key, got, want)
		}
	}
}

func inGlobal(t *testing.T, s *store, want int) {
	t.Helper()
	if got := s.count(t, "{n}:global"); got != want {
		t.Fatalf("%d slots are taken, expected %d", got, want)
	}
}

func inCategory(t *testing.T, s *store, category string, want int) {
	t.Helper()
	if got := s.count(t, "{n}:category:"+category); got != want {
		t.Fatalf("%d slots of %s are taken, expected %d", got, category, want)
	}
}

// A refused event can keep its slots, and the rest of the batch counts them. Another worker had admitted more
// than this worker's limit.
func TestBatchCountsSlotsThatARefusedEventKeeps(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		before := s.limiter(t, kit.Rules("99/2h", "5/2h", ""), day)
		unknown := event("unknown", "a")
		before.admits(unknown)
		before.posts(1, unknown, "", "p1")
		s.advance(t, 11*time.Minute)
		before.admits(events(2, "e", "a")...)
		for i, got := range s.limiter(t, kit.Rules("99/2h", "2/2h+2/10m", ""), day).admit(unknown, event("f", "a")) {
			if got.Verdict != ratelimit.Category || got.Tier.Window != 2*time.Hour || got.Used != 2+i {
				t.Errorf("%d: %+v, expected a refusal by 2/2h with %d used", i, got, 2+i)
			}
		}
	})
}

// If the kept slots are the only ones in their log, the log was empty for a moment and still has to expire.
func TestSlotsThatARefusedEventKeepsExpire(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("9/2h+1/10m", "9/2h", ""), day)
		unknown := event("unknown", "a")
		limiter.admits(unknown)
		limiter.posts(1, unknown, "", "p1")
		s.advance(t, 11*time.Minute)
		limiter.admits(event("e", "b"))
		limiter.want(ratelimit.Global, unknown)
		inCategory(t, s, "a", 1)
		if left := s.TTL(t.Context(), "{n}:category:a").Val(); left < time.Hour || left > 2*time.Hour+time.Second {
			t.Errorf("the log expires in %s, expected two hours at most", left)
		}
	})
}

func TestDedupeWindowEndsToTheMicrosecond(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), 2*time.Hour)
	e := event("e", "a")
	limiter.admits(e)
	s.advance(t, time.Minute)
	limiter.sent(e)
	s.advance(t, 2*time.Hour-time.Microsecond)
	limiter.duplicates(e)
	s.advance(t, time.Microsecond)
	limiter.admits(e)
	limiter.sent(e)
	limiter.duplicates(e)
}

// temporaryLimits takes pairs of a scope, such as "global" or "group/x", and a limit.
func temporaryLimits(pairs ...string) ratelimit.Temporary {
	limits := ratelimit.Temporary{Groups: map[string]ratelimit.Limit{}, Categories: map[string]ratelimit.Limit{}}
	for i := 0; i < len(pairs); i += 2 {
		limit := mustParse(pairs[i+1])
		switch scope := pairs[i]; {
		case scope == "global":
			limits.Global = limit
		case len(scope) > 6 && scope[:6] == "group/":
			limits.Groups[scope[6:]] = limit
		default:
			limits.Categories[scope[len("category/"):]] = limit
		}
	}
	return limits
}

// There may be room as soon as a temporary limit ends, before its slots are free.
func TestWaitEndsWithTheTemporaryLimit(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "9/30m", ""), day)
		limits := temporaryLimits("category/a", "1/30m", "category/b", "1/30m")
		limits.Ends = map[ratelimit.Scope]time.Time{{Category: "a"}: time.Now().Add(2 * time.Minute)}
		limiter.SetTemporary(limits)
		limiter.admits(event("a1", "a"), event("b1", "b"))
		if got := limiter.one(event("a2", "a")); !got.AtLeast || got.RetryAfter <= time.Minute || got.RetryAfter > 2*time.Minute {
			t.Errorf("%+v, expected a wait of at least two minutes", got)
		}
		if got := limiter.one(event("b2", "b")); got.AtLeast || got.RetryAfter <= 29*time.Minute {
			t.Errorf("%+v, expected a wait of half an hour", got)
		}
		limits.Ends = map[ratelimit.Scope]time.Time{{Category: "a"}: time.Now().Add(-time.Second)}
		limiter.SetTemporary(limits) // this worker has not noticed the end yet
		if got := limiter.one(event("a3", "a")); !got.AtLeast || got.RetryAfter != time.Microsecond {
			t.Errorf("%+v, expected the shortest wait", got)
		}
	})
}

// A call uses one set of rules even if limits change meanwhile.
func TestLimitsChangeUnderLoad(t *testing.T) {
	server := redistest.Start(t)
	limiter := newLimiter(t, server, kit.Rules("1000/30m", "1000/30m", "a.>=900/30m"), day)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 200 {
			switch i % 3 {
			case 0:
				limiter.SetTemporary(temporaryLimits("global", "500/1m", "group/a", "700/1h", "category/b", "10/10m"))
			case 1:
				limiter.SetTemporary(temporaryLimits("category/a.x", "600/1m:1s", "group/b", "30/1h:1m"))
			default:
				limiter.SetTemporary(ratelimit.Temporary{})
			}
		}
	}()
	for i := 0; ; i++ {
		batch := []ratelimit.Request{event(fmt.Sprint("e", i), "a.x"), event(fmt.Sprint("e", i), "b"), event(fmt.Sprint("e", i), "c")}
		if _, err := limiter.Admit(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// While a temporary limit has a longer window, Redis and the journal keep events in flight for that window.
func TestLongTemporaryLimitExtendsInFlight(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("9/10m", "9/10m", "")
		c := s.remembering(t, "r", rules, time.Minute)
		c.SetTemporary(temporaryLimits("global", "9/2h"))
		c.admits(event("e", "a"))
		c.pass(s, time.Hour)
		c.admits(event("e", "a"), event("f", "a")) // e a second time
		for _, when := range []string{"before", "after"} {
			if usages, err := c.Peek(t.Context()); err != nil || usages[0].Used != 2 {
				t.Errorf("%s a loss: %+v, %v; expected 2 used", when, usages, err)
			}
			s.empty(t)
			s.putsBack(t, c)
		}
	})
}

// A short temporary limit removes no record of an event with slots that the configured limit counts. Decided
// again, the event would be counted twice.
func TestShortTemporaryLimitKeepsRecords(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("9/1h", "9/1m", "")
		c := s.limiter(t, rules, time.Second)
		c.SetTemporary(temporaryLimits("global", "9/1m"))
		c.admits(event("e", "a"))
		s.advance(t, 2*time.Minute)
		c.admits(event("e", "a"))
		s.wantUsed(t, rules, 1)
	})
}

// A call sends only the rules of its own scopes. Limits of other categories add no arguments.
func TestLimitsOfOthersCostNothing(t *testing.T) {
	limiter := newLimiter(t, redistest.Start(t), kit.Rules("1000/30m", "1000/30m", "a.>=900/30m"), day)
	batch := []ratelimit.Request{event("e", "a.x"), event("e", "b")}
	few := limiter.ArgumentsOf(batch)
	var pairs []string
	for i := range 1000 {
		pairs = append(pairs, fmt.Sprint("category/c", i), "5/1h+3/10s")
	}
	limiter.SetTemporary(temporaryLimits(pairs...))
	if many := limiter.ArgumentsOf(batch); many != few {
		t.Errorf("%d arguments with 1,000 limits for others, %d without", many, few)
	}
}
