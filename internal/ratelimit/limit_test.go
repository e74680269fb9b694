package ratelimit_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"notifier/internal/ratelimit"
)

func TestParseLimit(t *testing.T) {
	for text, shortest := range map[string]string{
		"10/30m0s":                              "10/30m",
		"10/1800s":                              "10/30m",
		" 1/5s + 10/30m ":                       "1/5s+10/30m",
		"1/90m":                                 "1/1h30m",
		"1/1h5s":                                "1/1h0m5s",
		"1/0.5s":                                "1/500ms",
		"10/1800s:60s":                          "10/30m:1m",
		"1000000/24h:1m0s":                      "1000000/24h:1m",
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
		{"30m", `"30m"`, form},
		{"10 per 30m", `"10 per 30m"`, form},
		{"10/30m+", `""`, form},
		{"+10/30m", `""`, form},
		{"10/30m++1/5s", `""`, form},
		{"10/30m,1/5s", `"10/30m,1/5s"`, form},
		{"/30m", `count ""`, count},
		{"0/30m", `count "0"`, count},
		{"-1/30m", `count "-1"`, count},
		{"1.5/30m", `count "1.5"`, count},
		{"1e3/30m", `count "1e3"`, count},
		{"ten/30m", `count "ten"`, count},
		{"10 /30m", `count "10 "`, count},
		{"1000001/30m", `count "1000001"`, count},
		{"99999999999999999999/30m", `count "99999999999999999999"`, count},
		{"10/", `duration ""`, duration},
		{"10/30", `duration "30"`, duration},
		{"10/0s", `duration "0s"`, duration},
		{"10/-5m", `duration "-5m"`, duration},
		{"10/999us", `duration "999us"`, duration},
		{"10/745h", `duration "745h"`, duration},
		{"10/31d", `duration "31d"`, duration},
		{"10/30m/5s", `"10/30m/5s"`, form},
		{"10/30m;", `"10/30m;"`, form},
		{"10/ 30m", `duration " 30m"`, duration},
		{"10/9999999999h", `duration "9999999999h"`, duration},
		{"10/1000001ns", `duration "1000001ns"`, "expected whole microseconds"},
		{"10/30m+5/1800s", "5/30m and 10/30m", "expected one"},
		{"10/30m+5/30m:1m", "5/30m:1m and 10/30m", "expected one"},
		{"10/1h:fixed+5/60m:fixed", "5/1h:fixed and 10/1h:fixed", "expected one"},
		{"10/30m:", `precision ""`, precision},
		{"10/30m:fixedd", `precision "fixedd"`, precision},
		{"10/30m:Fixed", `precision "Fixed"`, precision},
		{"10/30m: 1m", `precision " 1m"`, precision},
		{"10/30m:1m:fixed", `precision "1m:fixed"`, precision},
		{"10/30m:fixed:1m", `precision "fixed:1m"`, precision},
		{"10/30m::1m", `precision ":1m"`, precision},
		{"10/30m:60", `precision "60"`, precision},
		{"10/30m:1h", `precision "1h"`, "expected 1ms to the window of 30m, in whole microseconds"},
		{"10/30m:0s", `precision "0s"`, "expected 1ms to the window of 30m, in whole microseconds"},
		{"10/30m:-1m", `precision "-1m"`, "expected 1ms to the window of 30m, in whole microseconds"},
		{"10/1s:999us", `precision "999us"`, "expected 1ms to the window of 1s, in whole microseconds"},
		{"10/1s:1000001ns", `precision "1000001ns"`, "in whole microseconds"},
		{"10/30m:1ms", `precision "1ms" divides the window of 30m into more than 1440 parts`, "expected 1.25s or longer"},
		{"10/30m:1249ms", `precision "1249ms"`, "expected 1.25s or longer"},
		{"1/1441ms:1ms", `precision "1ms"`, "expected 1.001ms or longer"},
		{"10/30m:1m+5/1m:5s", "precisions 1m and 5s", "expected one for the whole limit"},
		{"10/30m:7m+5/1h:fixed", "precision 7m", "expected one that divides the fixed window of 1h"},
		{"10/30m:1m+5/25h:fixed", "buckets of 1m divide the window of 25h into more than 1440 parts", "expected 1m2.5s or longer"},
		{"10/30m:1m+5/25h:1m", `precision "1m" divides the window of 25h into more than 1440 parts`, "expected 1m2.5s or longer"},
		{"10/744h:fixed+5/7m:fixed", "buckets of 1m divide the window of 744h into more than 1440 parts", "windows that have more in common"},
		{"10:1m/30m", `"10"`, form},
		{"10/30:1m", `duration "30"`, duration},
		{"10/30m:1m,5/1h", `precision "1m,5/1h"`, precision},
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

// anyLimit draws a limit that ParseLimit could return.
func anyLimit() *rapid.Generator[ratelimit.Limit] {
	return rapid.Custom(func(t *rapid.T) ratelimit.Limit {
		unit := rapid.SampledFrom([]time.Duration{time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour})
		tier := rapid.Custom(func(t *rapid.T) ratelimit.Tier {
			of := unit.Draw(t, "unit")
			least := max(1, int64(ratelimit.MinWindow/of))
			tier := ratelimit.Tier{
				Count:  rapid.IntRange(1, ratelimit.MaxCount).Draw(t, "count"),
				Window: time.Duration(rapid.Int64Range(least, int64(ratelimit.MaxWindow/of)).Draw(t, "window")) * of,
			}
			switch rapid.SampledFrom([]string{"", "fixed", "precision"}).Draw(t, "kind") {
			case "fixed":
				tier.Fixed = true
			case "precision":
				shortest := max(ratelimit.MinWindow, tier.Window/ratelimit.MaxBuckets+time.Microsecond).Microseconds()
				tier.Precision = time.Duration(rapid.Int64Range(min(shortest, tier.Window.Microseconds()), tier.Window.Microseconds()).Draw(t, "precision")) * time.Microsecond
			}
			return tier
		})
		type kind struct {
			window time.Duration
			fixed  bool
		}
		window := func(t ratelimit.Tier) kind { return kind{t.Window, t.Fixed} }
		var limit ratelimit.Limit
		for _, tier := range rapid.SliceOfNDistinct(tier, 1, ratelimit.MaxTiers, window).Draw(t, "limit") {
			for _, other := range limit { // a limit has one precision
				if tier.Precision > 0 && other.Precision > 0 && other.Precision <= tier.Window {
					tier.Precision = other.Precision
				}
			}
			together := append(slices.Clone(limit), tier)
			if _, err := ratelimit.ParseLimit(together.String()); err == nil {
				limit = together
			}
		}
		return limit
	})
}

func TestLimitsAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := anyLimit().Draw(t, "limit")
		got, err := ratelimit.ParseLimit(limit.String())
		if err != nil {
			t.Fatalf("%s: %v", limit, err)
		}
		if difference := cmp.Diff(limit, got); difference != "" {
			t.Fatalf("%s (-want +got):\n%s", limit, difference)
		}
	})
}

// TestOneExactTierMakesALimitExact: one such tier is enough, and a fixed one is counted in buckets.
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

// TestMostThatALimitAllows: in any time of that length, wherever it begins.
func TestMostThatALimitAllows(t *testing.T) {
	for _, test := range []struct {
		limit string
		span  time.Duration
		want  int
	}{
		{"10/30m", 30 * time.Minute, 10},
		{"10/30m", 31 * time.Minute, 20},
		{"10/30m", time.Second, 10},
		{"10/30m", day, 480},
		{"10/30m+100/24h", day, 100},
		{"10/30m:1m", time.Hour, 20},
		{"200/24h:fixed", day, 400}, // half of a window and half of the next
		{"200/24h:fixed", time.Hour, 400},
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
