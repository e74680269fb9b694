package ratelimit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"notifier/internal/ratelimit"
)

func TestParseLimitReadsWhatAUserWrites(t *testing.T) {
	for _, test := range []struct {
		text     string
		want     ratelimit.Limit
		shortest string // how it is written back
	}{
		{"10/30m", ratelimit.Limit{{Count: 10, Window: 30 * time.Minute}}, "10/30m"},
		{"10/30m0s", ratelimit.Limit{{Count: 10, Window: 30 * time.Minute}}, "10/30m"},
		{"10/1800s", ratelimit.Limit{{Count: 10, Window: 30 * time.Minute}}, "10/30m"},
		{"10/30m+1/5s", ratelimit.Limit{{Count: 10, Window: 30 * time.Minute}, {Count: 1, Window: 5 * time.Second}}, "10/30m+1/5s"},
		{" 1/5s + 10/30m ", ratelimit.Limit{{Count: 1, Window: 5 * time.Second}, {Count: 10, Window: 30 * time.Minute}}, "1/5s+10/30m"},
		{"1/90m", ratelimit.Limit{{Count: 1, Window: 90 * time.Minute}}, "1/1h30m"},
		{"1/1h30m5s", ratelimit.Limit{{Count: 1, Window: 90*time.Minute + 5*time.Second}}, "1/1h30m5s"},
		{"1/1h5s", ratelimit.Limit{{Count: 1, Window: time.Hour + 5*time.Second}}, "1/1h0m5s"},
		{"5/36h", ratelimit.Limit{{Count: 5, Window: 36 * time.Hour}}, "5/36h"},
		{"5/10h", ratelimit.Limit{{Count: 5, Window: 10 * time.Hour}}, "5/10h"},
		{"5/10m", ratelimit.Limit{{Count: 5, Window: 10 * time.Minute}}, "5/10m"},
		{"5/10s", ratelimit.Limit{{Count: 5, Window: 10 * time.Second}}, "5/10s"},
		{"1/0.5s", ratelimit.Limit{{Count: 1, Window: 500 * time.Millisecond}}, "1/500ms"},
		{"1/1.5ms", ratelimit.Limit{{Count: 1, Window: 1500 * time.Microsecond}}, "1/1.5ms"},
		{"1/1ms", ratelimit.Limit{{Count: 1, Window: time.Millisecond}}, "1/1ms"},
		{"1000000/744h", ratelimit.Limit{{Count: 1_000_000, Window: 31 * day}}, "1000000/744h"},
	} {
		got, err := ratelimit.ParseLimit(test.text)
		if err != nil {
			t.Errorf("%q: %v", test.text, err)
			continue
		}
		if difference := cmp.Diff(test.want, got); difference != "" {
			t.Errorf("%q (-want +got):\n%s", test.text, difference)
		}
		if got.String() != test.shortest {
			t.Errorf("%q is written back as %q, expected %q", test.text, got, test.shortest)
		}
	}
}

func TestParseLimitTakesUpToEightTiers(t *testing.T) {
	eight := "8/8s+7/7s+6/6s+5/5s+4/4s+3/3s+2/2s+1/1s"
	if limit, err := ratelimit.ParseLimit(eight); err != nil || len(limit) != ratelimit.MaxTiers {
		t.Errorf("eight tiers: %v, %v", limit, err)
	}
	if _, err := ratelimit.ParseLimit("9/9s+" + eight); err == nil || !strings.Contains(err.Error(), "9 tiers, expected at most 8") {
		t.Errorf("nine tiers: %v", err)
	}
}

func TestParseLimitErrorsNameThePartAndWhatIsExpected(t *testing.T) {
	const (
		form     = "expected COUNT/DURATION such as 10/30m"
		count    = "expected a whole number from 1 to 1000000"
		duration = "expected 1ms to 744h (31 days) such as 30m, 1h30m or 500ms"
	)
	for _, test := range []struct{ text, part, expected string }{
		{"", `""`, form},
		{"10", `"10"`, form},
		{"30m", `"30m"`, form},
		{"10 per 30m", `"10 per 30m"`, form},
		{"10/30m+", `""`, form},
		{"+10/30m", `""`, form},
		{"10/30m++1/5s", `""`, form},
		{"10/30m,1/5s", `duration "30m,1/5s"`, duration},
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
		{"10/30m/5s", `duration "30m/5s"`, duration},
		{"10/ 30m", `duration " 30m"`, duration},
		{"10/9999999999h", `duration "9999999999h"`, duration},
		{"10/1000001ns", `duration "1000001ns"`, "expected whole microseconds"},
		{"10/30m+5/1800s", "5/30m and 10/30m", "expected one"},
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
			return ratelimit.Tier{
				Count:  rapid.IntRange(1, ratelimit.MaxCount).Draw(t, "count"),
				Window: time.Duration(rapid.Int64Range(least, int64(ratelimit.MaxWindow/of)).Draw(t, "window")) * of,
			}
		})
		window := func(t ratelimit.Tier) time.Duration { return t.Window }
		return rapid.SliceOfNDistinct(tier, 1, ratelimit.MaxTiers, window).Draw(t, "limit")
	})
}

func TestEveryLimitIsReadBackFromItsShortestForm(t *testing.T) {
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

func FuzzParseLimit(f *testing.F) {
	for _, text := range []string{
		"10/30m", "10/30m+1/5s", "1/1h30m", "5/36h", "1/500ms", "1/.5s", "1/1h0m0.5s", " 10/30m ", "007/1m", "1/1500us", "1/1µs",
		"", "+", "/", "10/", "0/1s", "1/0s", "1000000/744h", "1000001/745h", "1/1s+1/1000ms", "9223372036854775808/1s",
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
