package ratelimit_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

func TestParseLimit(t *testing.T) {
	for text, shortest := range map[string]string{
		"10/30m0s":                              "10/30m",
		" 1/5s + 10/30m ":                       "1/5s+10/30m",
		"1/1h5s":                                "1/1h0m5s",
		"1/0.5s":                                "1/500ms",
		"10/30m:1250ms":                         "10/30m:1.25s",
		"1/1441ms:1001us":                       "1/1.441s:1.001ms",
		" 200/1440m:fixed + 10/3600s:60s+1/5s ": "200/24h:fixed+10/1h:1m+1/5s",
	} {
		if got, err := ratelimit.ParseLimit(text); err != nil || got.String() != shortest {
			t.Errorf("%q is read as %q, %v; expected %q", text, got, err, shortest)
		}
	}
	want := ratelimit.Limit{
		{Count: 200, Window: day, Fixed: true}, {Count: 10, Window: time.Hour, Precision: time.Minute}, {Count: 1, Window: 5 * time.Second},
	}
	if difference := cmp.Diff(want, mustParse("200/24h:fixed+10/1h:1m+1/5s")); difference != "" {
		t.Errorf("(-want +got):\n%s", difference)
	}
}

func TestLimitHasUpToEightTiers(t *testing.T) {
	eight := "8/8s+7/7s+6/6s+5/5s+4/4s+3/3s+2/2s+1/1s"
	if limit, err := ratelimit.ParseLimit(eight); err != nil || len(limit) != ratelimit.MaxTiers {
		t.Errorf("eight tiers: %v, %v", limit, err)
	}
	if _, err := ratelimit.ParseLimit("9/9s+" + eight); err == nil || !strings.Contains(err.Error(), "9 tiers, expected at most 8") {
		t.Errorf("nine tiers: %v", err)
	}
}

func TestLimitErrorsNameThePart(t *testing.T) {
	const (
		form      = "expected COUNT/DURATION such as 10/30m or 10/30m+1/5s"
		count     = "expected a whole number from 1 to 1000000"
		precision = "expected a duration such as 1m, or fixed"
		duration  = "expected 1ms to 744h (31 days) in h, m, s or ms, such as 30m, 1h30m or 500ms"
	)
	for _, test := range []struct{ text, part, expected string }{
		{"", `""`, form},
		{"10", `"10"`, form},
		{"0/30m", `count "0"`, count},
		{"1000001/30m", `count "1000001"`, count},
		{"10/30", `duration "30"`, duration},
		{"10/999us", `duration "999us"`, duration},
		{"10/745h", `duration "745h"`, duration},
		{"10/1000001ns", `duration "1000001ns"`, "expected whole microseconds"},
		{"10/30m+5/1800s", "5/30m and 10/30m", "expected one"},
		{"10/30m+5/30m:1m", "5/30m:1m and 10/30m", "expected one"},
		{"10/1h:fixed+5/60m:fixed", "5/1h:fixed and 10/1h:fixed", "expected one"},
		{"10/30m:fixedd", `precision "fixedd"`, precision},
		{"10/30m:1h", `precision "1h"`, "expected 1ms to the window of 30m, in whole microseconds"},
		{"10/1s:999us", `precision "999us"`, "expected 1ms to the window of 1s, in whole microseconds"},
		{"10/1s:1000001ns", `precision "1000001ns"`, "in whole microseconds"},
		{"10/30m:1ms", `precision "1ms" divides the window of 30m into more than 1440 parts`, "expected 1.25s or longer"},
		{"10/30m:1m+5/1m:5s", "precisions 1m and 5s", "expected one for the whole limit"},
		{"10/30m:7m+5/1h:fixed", "precision 7m", "expected one that divides the fixed window of 1h"},
		{"10/30m:1m+5/25h:fixed", "buckets of 1m divide the window of 25h into more than 1440 parts", "expected 1m2.5s or longer"},
		{"10/744h:fixed+5/7m:fixed", "buckets of 1m divide the window of 744h into more than 1440 parts", "windows that have more in common"},
	} {
		limit, err := ratelimit.ParseLimit(test.text)
		if err == nil {
			t.Errorf("%q was read as %s, expected an error", test.text, limit)
			continue
		}
		if limit != nil || !strings.Contains(err.Error(), test.part) || !strings.Contains(err.Error(), test.expected) {
			t.Errorf("%q: %v with %q; the error should name %s and say %q", test.text, limit, err, test.part, test.expected)
		}
	}
}

func TestOneExactTierMakesALimitExact(t *testing.T) {
	for text, want := range map[string]bool{
		"10/30m": true, "10/30m:1m": false, "10/30m:fixed": false, "10/30m:fixed+5/1m": true, "10/30m:1m+5/5m:1m": false, "10/30m:1m+200/24h:fixed": false,
		"10/30m+5/1m": true,
	} {
		if got := mustParse(text).Exact(); got != want {
			t.Errorf("%s: %t, expected %t", text, got, want)
		}
	}
	if (ratelimit.Limit)(nil).Exact() {
		t.Error("a level without a limit keeps each event")
	}
}

func TestMostThatALimitAllows(t *testing.T) {
	for _, test := range []struct {
		limit string
		span  time.Duration
		want  int
	}{
		{"10/30m", 30 * time.Minute, 10},
		{"10/30m", day, 480},
		{"10/30m+100/24h", day, 100},
		{"10/30m:1m", time.Hour, 20},
		{"200/24h:fixed", day, 400}, // half of one window and half of the next
		{"200/24h:fixed+10/1h", time.Hour, 10},
		{"1000000/1ms", 31 * day, 1_000_000 * 31 * 24 * 3600 * 1000},
		{"10/30m", 0, 10},
	} {
		if got := mustParse(test.limit).Most(test.span); got != test.want {
			t.Errorf("%s in %s: %d, expected %d", test.limit, test.span, got, test.want)
		}
	}
}

func FuzzParseLimit(f *testing.F) {
	for _, text := range []string{
		"10/30m", "10/30m+1/5s", "1/1h30m", "5/36h", "1/500ms", "1/.5s", "1/1h0m0.5s", " 10/30m ", "007/1m", "1/1500us", "1/1µs",
		"", "+", "/", "10/", "0/1s", "1/0s", "1000000/744h", "1000001/745h", "1/1s+1/1000ms", "9223372036854775808/1s",
		"1000000/24h:1m", "1000000/24h:15m", "200/24h:fixed", "200/24h:fixed+10/1h:1m+1/5s", "1/1s+1/1s:fixed", "10/30m:", "10/30m:fixedd", "10/30m:1h",
		"10/30m:0s", "10/30m:1ms", "10/30m:1m:fixed", "1/1ms:1ms", "1/1.5s:1001us", "1/1s:1us", "10/30m:1250ms",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		limit, err := ratelimit.ParseLimit(text)
		if err != nil {
			if limit != nil || err.Error() == "" {
				t.Fatalf("%q: %v beside the error %q", text, limit, err)
			}
			return
		}
		if len(limit) < 1 || len(limit) > ratelimit.MaxTiers {
			t.Fatalf("%q: %d tiers", text, len(limit))
		}
		for _, tier := range limit {
			if tier.Count < 1 || tier.Count > ratelimit.MaxCount || tier.Window < ratelimit.MinWindow || tier.Window > ratelimit.MaxWindow {
				t.Fatalf("%q: tier %+v is out of bounds", text, tier)
			}
			if p := tier.Precision; p != 0 && (tier.Fixed || p < ratelimit.MinWindow || p > tier.Window || tier.Window > ratelimit.MaxBuckets*p) {
				t.Fatalf("%q: precision of %+v is out of bounds", text, tier)
			}
		}
		again, err := ratelimit.ParseLimit(limit.String())
		if err != nil {
			t.Fatalf("%q is written as %q, which is refused: %v", text, limit, err)
		}
		if difference := cmp.Diff(limit, again); difference != "" {
			t.Fatalf("%q is written as %q, which is another limit:\n%s", text, limit, difference)
		}
	})
}

func TestOverridesAreParsed(t *testing.T) {
	for _, test := range []struct {
		text string
		want map[string]ratelimit.Limit
	}{
		{"", map[string]ratelimit.Limit{}},
		{"deploys=5/1h", map[string]ratelimit.Limit{"deploys": mustParse("5/1h")}},
		{"errors=20/30m+2/10s,deploys=5/1h", map[string]ratelimit.Limit{"errors": mustParse("20/30m+2/10s"), "deploys": mustParse("5/1h")}},
		{" errors = 20/30m , eu.west = 1/5s ", map[string]ratelimit.Limit{"errors": mustParse("20/30m"), "eu.west": mustParse("1/5s")}},
	} {
		got, err := ratelimit.ParseOverrides(test.text)
		if err != nil {
			t.Errorf("%q: %v", test.text, err)
			continue
		}
		if difference := cmp.Diff(test.want, maps.Collect(got.All())); difference != "" {
			t.Errorf("%q (-want +got):\n%s", test.text, difference)
		}
	}
}

func TestOverrideErrorsNameTheCategory(t *testing.T) {
	for _, test := range []struct{ text, part, expected string }{
		{"errors", `"errors"`, "expected CATEGORY=LIMIT such as errors=20/30m+2/10s, separated by commas"},
		{"errors=5/1h,", `""`, "expected CATEGORY=LIMIT"},
		{"errors=", `errors: ""`, "expected COUNT/DURATION"},
		{"deploys=5/1h,errors=5/1y", `errors: duration "1y"`, "expected 1ms to 744h"},
		{"errors=5/1h,errors=6/1h", "errors is listed twice", "expected each category once"},
	} {
		overrides, err := ratelimit.ParseOverrides(test.text)
		if err == nil {
			t.Errorf("%q was read as %v, expected an error", test.text, overrides)
			continue
		}
		if overrides.Len() > 0 || !strings.Contains(err.Error(), test.part) || !strings.Contains(err.Error(), test.expected) {
			t.Errorf("%q: %v with %q; the error should name %s and say %q", test.text, overrides, err, test.part, test.expected)
		}
	}
}

func TestNewRefusesWhatItCannotServe(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // New does not connect
	defer func() { _ = client.Close() }()
	good := kit.Rules("100/30m", "10/30m", "")
	for _, test := range []struct {
		name, namespace string
		rules           ratelimit.Rules
		dedupe          time.Duration
		want            string
	}{
		{"no namespace", "", good, day, `namespace "", expected a name without braces and whitespace`},
		{"no dedupe window", "n", good, 0, "dedupe window 0s, expected 1ms or more"},
		{"no global limit", "n", ratelimit.Rules{Category: good.Category}, day, "a limit without a tier, expected COUNT/DURATION"},
		{"an empty override", "n", ratelimit.Rules{Global: good.Global, Category: good.Category, Overrides: pattern.MustTable(map[string]ratelimit.Limit{"a": {}})}, day, "a limit without a tier"},
	} {
		limiter, err := ratelimit.New(client, test.namespace, test.rules, test.dedupe)
		if limiter != nil || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, %v; expected an error with %q", test.name, limiter, err, test.want)
		}
	}
}

// withLevels parses the limits of all levels.
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

// The error about a cost that is too high names the bound.
func TestHighestCost(t *testing.T) {
	for _, test := range []struct {
		global, category, overrides, group, groups, reserve string
		of                                                  string
		want                                                int
		why                                                 string
	}{
		{"100/30m", "10/30m", "", "", "", "", "a", 10, ", as the limit 10/30m of its category allows"},
		{"100/30m", "10/30m", "a.>=20/30m", "", "", "", "a.b", 20, ", as the limit 20/30m of its category allows"},
		{"100/30m", "50/30m", "", "40/30m", "", "", "a.b", 40, ", as the limit 40/30m of its group allows"},
		{"100/30m", "50/30m", "", "40/30m", "a=45/1h:fixed", "", "a.b", 45, ", as the limit 45/1h:fixed of its group allows"},
		{"30/30m+9/1m", "50/30m", "", "40/30m", "", "", "a", 9, ", as the global limit 30/30m+9/1m allows"},
		{"100/30m", "100/30m", "", "", "", "p=5,a=2", "a", 95, ", with 5 slots of the global limit 100/30m reserved for other categories"},
		{"100/30m", "100/30m", "", "", "", "p=5,a=2", "x", 93, ", with 7 slots of the global limit 100/30m reserved for other categories"},
		{"100/30m+8/5s", "100/30m", "", "", "", "p=5,a=2", "x", 1, ", with 7 slots of the global limit 100/30m+8/5s reserved for other categories"},
		{"100000/30m:1m", "5000/30m:1m", "", "6000/30m", "", "", "a", 1000, ": the limit 6000/30m of its group keeps each event, so a cost goes up to 1000"},
		{"100000/30m", "5000/30m:1m", "", "", "", "", "a", 1000, ": the global limit 100000/30m keeps each event, so a cost goes up to 1000"},
		{"1000000/24h:15m", "400000/24h:fixed", "", "500000/24h:1m", "", "", "a", 400000, ", as the limit 400000/24h:fixed of its category allows"},
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

// A global tier keeps slots only if its COUNT exceeds the sum of the reservations. The COUNT of the tiers
// with the longest window must exceed it.
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

// The use of a category with reserved slots must be known to the microsecond.
func TestReservedCategoryNeedsAnExactLimit(t *testing.T) {
	reserve := map[string]int{"p": 5}
	for _, test := range []struct{ category, overrides, wrong string }{
		{"10/30m", "", ""},
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

// One error lists all invalid reservations.
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
