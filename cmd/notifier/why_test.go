//go:build !production

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/internal/testkit"
)

// Where the limit is counted in buckets nobody has written down when an event was admitted, which is not the same as that its
// slot is free again.
func TestWhyOfALimitInBuckets(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 4, 39, 1, 123456000, time.UTC)
	const notKnown = "  admitted  not known: the global limit is counted in buckets, without the events"
	for name, test := range map[string]struct {
		inBuckets bool
		trace     ratelimit.Trace
		want      []string
	}{
		"sent":                {true, ratelimit.Trace{Category: "errors", Sent: at}, []string{"e1 of category errors was sent.", notKnown, "  sent      2026-11-20T04:39:01.123456Z"}},
		"sent, with slots":    {false, ratelimit.Trace{Category: "errors", Sent: at}, []string{"e1 of category errors was sent.", "  sent      2026-11-20T04:39:01.123456Z"}},
		"in flight":           {true, ratelimit.Trace{Category: "errors", InFlight: true, Admitted: at}, []string{"e1 of category errors is admitted and on its way to Slack.", "  admitted  2026-11-20T04:39:01.123456Z"}},
		"sent, with a record": {true, ratelimit.Trace{Category: "errors", Sent: at, Admitted: at}, []string{"e1 of category errors was sent.", "  admitted  2026-11-20T04:39:01.123456Z", "  sent      2026-11-20T04:39:01.123456Z"}},
	} {
		if diff := cmp.Diff(test.want, whyOutput{id: "e1", inBuckets: test.inBuckets}.text(test.trace)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestWhyReadsHowTheLimitIsCounted(t *testing.T) {
	t.Parallel()
	_, _, env := services(t, map[string]string{"LIMIT_GLOBAL": "100/30m:1m"})
	startReady(t, env)
	publishes(t, env, "errors", "-id", "e1", "disk full")
	eventuallySays(t, "it was sent", env, []string{"why", "e1"}, func(out string) bool {
		return strings.Contains(out, "was sent.\n")
	})
	testkit.Check(t, testkit.OpenRedis(t, env["REDIS_URL"]).Del(t.Context(), "{notifier}:global").Err())
	if out, _ := runToEnd(t, env, exitDone, "why", "e1"); !strings.Contains(out, "was sent.\n  admitted  not known: ") {
		t.Errorf("expected that it is not known when it was admitted:\n%s", out)
	}
	env["LIMIT_GLOBAL"] = "100/30m:1m+100/1h"
	if out, _ := runToEnd(t, env, exitDone, "why", "e1"); strings.Contains(out, "  admitted  ") {
		t.Errorf("expected that its slot is free:\n%s", out)
	}
}
