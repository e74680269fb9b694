package simulate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"notifier/internal/devstack/simulate"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// began is the time of the first event. Its odd microseconds reveal truncated times.
var began = time.Date(2026, 11, 13, 4, 39, 1, 123457000, time.UTC)

// levels adds group limits and reservations to rules, in the syntax of the settings.
func levels(rules ratelimit.Rules, group, groups, reserve string) ratelimit.Rules {
	var errs [3]error
	rules.Group, errs[0] = ratelimit.ParseGroupLimit(group)
	rules.GroupOverrides, errs[1] = ratelimit.ParseGroupOverrides(groups)
	rules.Reserve, errs[2] = ratelimit.ParseReserve(reserve)
	if err := errors.Join(errs[:]...); err != nil {
		panic(err)
	}
	return rules
}

func read(tb testing.TB, text string) simulate.Input {
	tb.Helper()
	input, err := simulate.Read(tb.Context(), strings.NewReader(text))
	kit.Check(tb, err)
	return input
}

func run(tb testing.TB, text string, rules ratelimit.Rules, dedupe time.Duration) []simulate.Verdict {
	tb.Helper()
	var verdicts []simulate.Verdict
	err := simulate.Run(tb.Context(), read(tb, text).Events, rules, dedupe, func(v simulate.Verdict) error {
		verdicts = append(verdicts, v)
		return nil
	})
	kit.Check(tb, err)
	return verdicts
}

// at returns the line of an event, at a time after began. fields adds members such as `"cost":2`.
func at(after time.Duration, category string, fields ...string) string {
	fields = append([]string{fmt.Sprintf(`"time":%q,"category":%q`, began.Add(after).Format(time.RFC3339Nano), category)}, fields...)
	return "{" + strings.Join(fields, ",") + "}\n"
}

// repeat joins the lines that line returns for 0 to n-1.
func repeat(n int, line func(i int) string) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(line(i))
	}
	return text.String()
}

const day = 24 * time.Hour
