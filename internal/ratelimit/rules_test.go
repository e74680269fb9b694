package ratelimit_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

func TestOverridesAreParsed(t *testing.T) {
	for _, test := range []struct {
		text string
		want map[string]ratelimit.Limit
	}{
		{"", map[string]ratelimit.Limit{}},
		{"  ", map[string]ratelimit.Limit{}},
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
		{"=5/1h", `"=5/1h"`, "expected CATEGORY=LIMIT"},
		{" =5/1h", `" =5/1h"`, "expected CATEGORY=LIMIT"},
		{"errors=5/1h,", `""`, "expected CATEGORY=LIMIT"},
		{"errors=5/1h,,deploys=5/1h", `""`, "expected CATEGORY=LIMIT"},
		{"errors=5/1h;deploys=5/1h", `"errors=5/1h;deploys=5/1h"`, "separated by commas"},
		{"errors=", `errors: ""`, "expected COUNT/DURATION"},
		{"errors=0/1h", `errors: count "0"`, "expected a whole number from 1"},
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
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nothing is connected yet
	defer func() { _ = client.Close() }()
	good := kit.Rules("100/30m", "10/30m", "")
	for _, test := range []struct {
		name, namespace string
		rules           ratelimit.Rules
		dedupe          time.Duration
		want            string
	}{
		{"no namespace", "", good, day, `namespace "", expected a name without braces and whitespace`},
		{"a brace in it", "a{b}", good, day, `namespace "a{b}", expected`},
		{"no dedupe window", "n", good, 0, "dedupe window 0s, expected 1ms or more"},
		{"no global limit", "n", ratelimit.Rules{Category: good.Category}, day, "a limit without a tier, expected COUNT/DURATION"},
		{"no category limit", "n", ratelimit.Rules{Global: good.Global}, day, "a limit without a tier"},
		{"an empty override", "n", ratelimit.Rules{Global: good.Global, Category: good.Category, Overrides: pattern.MustTable(map[string]ratelimit.Limit{"a": {}})}, day, "a limit without a tier"},
	} {
		limiter, err := ratelimit.New(client, test.namespace, test.rules, test.dedupe)
		if limiter != nil || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, %v; expected an error with %q", test.name, limiter, err, test.want)
		}
	}
}
