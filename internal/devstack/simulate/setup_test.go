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

// levels adds group limits and reserves to rules, in the notation of the settings.
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

// read reads an input that has no fault.
func read(tb testing.TB, text string) simulate.Input {
	tb.Helper()
	input, err := simulate.Read(tb.Context(), strings.NewReader(text))
	kit.Check(tb, err)
	return input
}

// run decides an input and gives the verdicts.
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

// at is a line of an event that long after the beginning; fields are further ones, such as `"cost":2`.
func at(after time.Duration, category string, fields ...string) string {
	fields = append([]string{fmt.Sprintf(`"time":%q,"category":%q`, began.Add(after).Format(time.RFC3339Nano), category)}, fields...)
	return "{" + strings.Join(fields, ",") + "}\n"
}

// repeat is n lines, the i-th as line says.
func repeat(n int, line func(i int) string) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(line(i))
	}
	return text.String()
}

const day = 24 * time.Hour
