package ratelimit_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// withLevels are limits of all levels, as a user writes them.
func withLevels(tb rapid.TB, global, category, overrides, group, groups, reserve string) ratelimit.Rules {
	tb.Helper()
	rules := kit.Rules(global, category, overrides)
	var err error
	check := func(err error) {
		if err != nil {
			tb.Fatalf("%v", err)
		}
	}
	rules.Group, err = ratelimit.ParseGroupLimit(group)
	check(err)
	rules.GroupOverrides, err = ratelimit.ParseGroupOverrides(groups)
	check(err)
	rules.Reserve, err = ratelimit.ParseReserve(reserve)
	check(err)
	check(rules.CheckReserve())
	return rules
}

// TestHighestCost of an event, and which bound the error about a higher one names.
func TestHighestCost(t *testing.T) {
	for _, test := range []struct {
		global, category, overrides, group, groups, reserve string
		of                                                  string
		want                                                int
		why                                                 string
	}{
		{"100/30m", "10/30m", "", "", "", "", "a", 10, ", as the limit 10/30m of its category allows"},
		{"100/30m", "10/30m+3/1s", "", "", "", "", "a", 3, ", as the limit 10/30m+3/1s of its category allows"},
		{"100/30m", "10/30m", "a.>=20/30m", "", "", "", "a.b", 20, ", as the limit 20/30m of its category allows"},
		{"100/30m", "10/30m", "a.>=20/30m", "", "", "", "a", 10, ", as the limit 10/30m of its category allows"},
		{"100/30m", "50/30m", "", "40/30m", "", "", "a.b", 40, ", as the limit 40/30m of its group allows"},
		{"100/30m", "50/30m", "", "40/30m", "b=1/1s", "", "a", 40, ", as the limit 40/30m of its group allows"},
		{"100/30m", "50/30m", "", "40/30m", "a=45/1h:fixed", "", "a.b", 45, ", as the limit 45/1h:fixed of its group allows"},
		{"30/30m+9/1m", "50/30m", "", "40/30m", "", "", "a", 9, ", as the global limit 30/30m+9/1m allows"},
		{"10/30m", "10/30m", "", "10/30m", "", "", "a", 10, ", as the limit 10/30m of its category allows"},
		{"10/30m", "20/30m", "", "10/30m", "", "", "a", 10, ", as the limit 10/30m of its group allows"},
		{"100/30m", "100/30m", "", "", "", "p=5,a=2", "a", 95, ", with 5 slots of the global limit 100/30m reserved for other categories"},
		{"100/30m", "100/30m", "", "", "", "p=5,a=2", "x", 93, ", with 7 slots of the global limit 100/30m reserved for other categories"},
		{"100/30m+6/5s", "100/30m", "", "", "", "p=5,a=2", "x", 6, ", as the global limit 100/30m+6/5s allows"},
		{"100/30m+8/5s", "100/30m", "", "", "", "p=5,a=2", "x", 1, ", with 7 slots of the global limit 100/30m+8/5s reserved for other categories"},
		{"100000/30m:1m", "5000/30m", "", "", "", "", "a", 1000, ": the limit 5000/30m of its category keeps each event, so a cost goes up to 1000"},
		{"100000/30m:1m", "5000/30m:1m", "", "6000/30m", "", "", "a", 1000, ": the limit 6000/30m of its group keeps each event, so a cost goes up to 1000"},
		{"100000/30m", "5000/30m:1m", "", "", "", "", "a", 1000, ": the global limit 100000/30m keeps each event, so a cost goes up to 1000"},
		{"100000/30m:1m", "5000/30m:1m+2000/1m", "", "", "", "", "a", 1000, ": the limit 5000/30m:1m+2000/1m of its category keeps each event, so a cost goes up to 1000"},
		{"100000/30m:1m", "999/30m", "", "", "", "", "a", 999, ", as the limit 999/30m of its category allows"},
		{"1000000/24h:15m", "400000/24h:fixed", "", "500000/24h:1m", "", "", "a", 400000, ", as the limit 400000/24h:fixed of its category allows"},
		{"1000000/24h:15m", "1000000/24h:15m", "p=9/1h", "", "", "p=300000", "a", 700000, ", with 300000 slots of the global limit 1000000/24h:15m reserved for other categories"},
		{"1000000/24h:15m", "20000/24h:15m", "b.*=9/1h", "", "b=9/1h", "", "a", 20000, ", as the limit 20000/24h:15m of its category allows"},
	} {
		rules := withLevels(t, test.global, test.category, test.overrides, test.group, test.groups, test.reserve)
		if got := rules.MaxCost(test.of); got != test.want {
			t.Errorf("%+v: %d, expected %d", test, got, test.want)
		}
		for _, cost := range []int{1, test.want} {
			if err := rules.CheckCost(test.of, cost); err != nil {
				t.Errorf("%+v: a cost of %d: %v", test, cost, err)
			}
		}
		for _, cost := range []int{0, test.want + 1} {
			if err := rules.CheckCost(test.of, cost); err == nil || err.Error() != fmt.Sprint("expected 1 to ", test.want, test.why) {
				t.Errorf("%+v: a cost of %d: %v", test, cost, err)
			}
		}
	}
}

// TestLimitsOfACategory: which limit holds for it at each level.
func TestLimitsOfACategory(t *testing.T) {
	rules := withLevels(t, "100/30m", "10/30m", "a.*=20/30m,a.>=30/30m,*.db=40/30m,a.x=50/30m", "60/30m", "b=70/30m:1m", "")
	for category, want := range map[string][2]string{
		"a": {"10/30m", "60/30m"}, "a.x": {"50/30m", "60/30m"}, "a.y": {"20/30m", "60/30m"}, "a.db": {"20/30m", "60/30m"},
		"a.y.z": {"30/30m", "60/30m"}, "b": {"10/30m", "70/30m:1m"}, "b.db": {"40/30m", "70/30m:1m"}, "bb.x": {"10/30m", "60/30m"},
	} {
		group := ratelimit.GroupOf(category)
		if own, shared := rules.LimitFor(category).String(), rules.GroupLimit(group).String(); own != want[0] || shared != want[1] {
			t.Errorf("%s of the group %s: %s and %s, expected %v", category, group, own, shared, want)
		}
	}
	rules.Group = nil
	if limit := rules.GroupLimit("a"); len(limit) != 0 {
		t.Errorf("the limit of a group is %s, expected none", limit)
	}
	if limit := rules.GroupLimit("b"); limit.String() != "70/30m:1m" {
		t.Errorf("the limit of a group with an override is %s", limit)
	}
}

// TestWhatReserves: only tiers with more slots than are reserved, and those with the longest window have to.
func TestWhatReserves(t *testing.T) {
	for _, test := range []struct {
		global, reserve string
		reserving       []string
		wrong           string
	}{
		{"100/30m+1/5s", "", nil, ""},
		{"100/30m+1/5s", "a=5", []string{"100/30m"}, ""},
		{"100/30m+6/5s", "a=5", []string{"100/30m", "6/5s"}, ""},
		{"1/5s+100/30m", "a=99", []string{"100/30m"}, ""},
		{"1/5s+100/30m", "a=99,b=1", nil, "100 slots are reserved, and the global limit 100/30m has 100; expected fewer reserved slots than that"},
		{"100/5s+10/30m", "a=10", []string{"100/5s"}, "10 slots are reserved, and the global limit 10/30m has 10; expected fewer reserved slots than that"},
		{"100/24h+20/24h:fixed", "a=50", []string{"100/24h"}, "50 slots are reserved, and the global limit 20/24h:fixed has 20; expected fewer reserved slots than that"},
	} {
		reserve, err := ratelimit.ParseReserve(test.reserve)
		kit.Check(t, err)
		rules := ratelimit.Rules{Global: mustParse(test.global), Category: mustParse("10/30m"), Reserve: reserve}
		var reserving []string
		for _, tier := range rules.Global {
			if rules.Reserves(tier) {
				reserving = append(reserving, tier.String())
			}
		}
		wrong := ""
		if err := rules.CheckReserve(); err != nil {
			wrong = err.Error()
		}
		if !slices.Equal(reserving, test.reserving) || wrong != test.wrong {
			t.Errorf("%s with %s: %v reserve, %q; expected %v, %q", test.global, test.reserve, reserving, wrong, test.reserving, test.wrong)
		}
	}
}

// A category for which slots are reserved keeps each event, so that what it uses is known to the microsecond.
func TestReservedCategoryNeedsAnExactLimit(t *testing.T) {
	reserve := map[string]int{"p": 5}
	for _, test := range []struct{ category, overrides, wrong string }{
		{"10/30m", "", ""},
		{"10/30m:1m", "p=10/30m", ""},
		{"10/30m", "q=10/30m:1m", ""},
		{"10/30m:1m+2/1m", "", ""},
		{"10/30m:1m", "", "slots are reserved for p, and its limit 10/30m:1m is counted in buckets; " +
			"expected a limit that keeps each event, such as 10/30m"},
		{"10/30m", "p=7/24h:fixed", "slots are reserved for p, and its limit 7/24h:fixed is counted in buckets; " +
			"expected a limit that keeps each event, such as 7/24h"},
	} {
		rules := kit.Rules("100/30m", test.category, test.overrides)
		rules.Reserve = reserve
		wrong := ""
		if err := rules.CheckReserve(); err != nil {
			wrong = err.Error()
		}
		if wrong != test.wrong {
			t.Errorf("%s, %s: %q, expected %q", test.category, test.overrides, wrong, test.wrong)
		}
	}
}

// A cost is bounded by the form that is written, whatever form other replicas have written before.
func TestCostIsBoundedByTheWritersEncoding(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		exact := s.limiter(t, kit.Rules("1000000/24h", "1000000/24h", ""), day)
		buckets := s.limiter(t, kit.Rules("1000000/24h:15m", "1000000/24h:15m", ""), day)
		exact.admits(event("first", "a"))
		buckets.admits(event("second", "a"))
		exact.admits(event("third", "a"))
		const cost = 400_000
		if err := exact.Rules().CheckCost("a", cost); err == nil {
			t.Error("a limit that keeps each event takes a cost of 400000")
		}
		kit.Check(t, buckets.Rules().CheckCost("a", cost))
		big := costing(event("big", "a"), cost)
		buckets.admits(big)
		for key, most := range map[string]int{"global": 2, "category:a": 2, "buckets:global": 2, "buckets:category:a": 2} {
			if n := s.count(t, "{n}:"+key); n > most {
				t.Errorf("%s has %d entries, expected %d at most", key, n, most)
			}
		}
		if usages, err := exact.Peek(t.Context(), "a"); err != nil || usages[0].Used != cost+3 || usages[1].Used != cost+3 {
			t.Errorf("%+v, %v, expected that all count", usages, err)
		}
		exact.refunds(big)
		if usages, err := buckets.Peek(t.Context(), "a"); err != nil || usages[0].Used != 3 || usages[1].Used != 3 {
			t.Errorf("%+v, %v, expected that 3 are left", usages, err)
		}
	})
}

// TestGroupsAndReservesAreRead as a user writes them; what is wrong is named at once.
func TestGroupsAndReservesAreRead(t *testing.T) {
	groups, err := ratelimit.ParseGroupOverrides(" team-a = 40/30m , errors=5/1h:fixed")
	if kit.Check(t, err); groups["team-a"].String() != "40/30m" || groups["errors"].String() != "5/1h:fixed" || len(groups) != 2 {
		t.Errorf("groups: %v", groups)
	}
	reserve, err := ratelimit.ParseReserve("payments=5, team-a.job1 = 1000000")
	if kit.Check(t, err); !maps.Equal(reserve, map[string]int{"payments": 5, "team-a.job1": 1_000_000}) {
		t.Errorf("reserve: %v", reserve)
	}
	for text, want := range map[string]string{
		"a":                      `"a", expected CATEGORY=SLOTS such as payments=5, separated by commas`,
		"a=1,z=0,b=-1,c=1000001": "z: slots \"0\", expected a whole number from 1 to 1000000\nb: slots \"-1\", expected a whole number from 1 to 1000000\nc: slots \"1000001\", expected a whole number from 1 to 1000000",
		"a=1.5":                  `a: slots "1.5", expected a whole number from 1 to 1000000`,
		"a=99999999999999999999": `a: slots "99999999999999999999", expected a whole number from 1 to 1000000`,
		"*=1":                    `"*" is a pattern, expected the name of one category, such as payments, for which the slots are kept`,
		"a.=1":                   `"a." has an empty token, expected text between all dots`,
	} {
		if got, err := ratelimit.ParseReserve(text); got != nil || err == nil || err.Error() != want {
			t.Errorf("reserve %q: %v, %v; expected %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "  "} {
		limit, err := ratelimit.ParseGroupLimit(text)
		groups, groupsErr := ratelimit.ParseGroupOverrides(text)
		reserve, reserveErr := ratelimit.ParseReserve(text)
		if len(limit)+len(groups)+len(reserve) > 0 || err != nil || groupsErr != nil || reserveErr != nil {
			t.Errorf("%q: %v, %v, %v, expected none", text, limit, groups, reserve)
		}
	}
}

// TestHighestCostFitsAnEmptyStore: with nothing admitted, an event of the highest cost fits each tier, what
// is held for other categories included, and one that costs more does not or is too much to keep.
func TestHighestCostFitsAnEmptyStore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := func(name string) string { return anyLimit().Draw(t, name).String() }
		rules := withLevels(t, limit("global"), limit("category"), "a="+limit("override"), limit("group"), "", "")
		largest := 0
		for _, tier := range rules.Global {
			largest = max(largest, tier.Count)
		}
		if largest > 3 {
			rules.Reserve = map[string]int{"a": rapid.IntRange(1, largest/3).Draw(t, "a"), "b": rapid.IntRange(1, largest/3).Draw(t, "b")}
		}
		category := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "category")
		fits := func(cost int) bool {
			held := 0
			for other, slots := range rules.Reserve {
				if other != category {
					held += slots
				}
			}
			for _, tier := range rules.Global {
				if rules.Reserves(tier) && cost+held > tier.Count || cost > tier.Count {
					return false
				}
			}
			for _, limit := range []ratelimit.Limit{rules.LimitFor(category), rules.GroupLimit(category)} {
				for _, tier := range limit {
					if cost > tier.Count {
						return false
					}
				}
			}
			exact := rules.Global.Exact() || rules.LimitFor(category).Exact() || rules.Group.Exact()
			return !exact || cost <= ratelimit.MaxExactCost
		}
		if most := rules.MaxCost(category); most < 1 || !fits(most) || fits(most+1) {
			t.Fatalf("%s may cost up to %d: %t, and one more: %t", category, most, fits(most), fits(most+1))
		}
	})
}
