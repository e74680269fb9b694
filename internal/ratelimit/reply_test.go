package ratelimit

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func decodingLimiter(t *testing.T) (*Limiter, []Request) {
	t.Helper()
	global, _ := ParseLimit("100/30m+50/1m")
	category, _ := ParseLimit("10/30m")
	overrides, _ := ParseOverrides("errors=20/30m+2/10s+1/1s")
	limiter, err := New(nil, "n", Rules{Global: global, Category: category, Overrides: overrides}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return limiter, []Request{{ID: "e", Category: "errors", Cost: 1}, {ID: "f", Category: "other", Cost: 1}}
}

// whole is a list of numbers as a client hands it over.
func whole(numbers ...int64) []any {
	list := make([]any, len(numbers))
	for i, number := range numbers {
		list[i] = number
	}
	return list
}

// rows is a list of lists.
func rows(lists ...[]any) []any {
	rows := make([]any, len(lists))
	for i, list := range lists {
		rows[i] = list
	}
	return rows
}

const someTime = int64(1795149541123457)

func TestDecodeReadsWhatTheScriptSays(t *testing.T) {
	limiter, batch := decodingLimiter(t)
	tier := func(text string) Tier {
		limit, _ := ParseLimit(text)
		return limit[0]
	}
	for name, test := range map[string]struct {
		verdicts, refusals []any
		want               []Decision
	}{
		"sent and duplicate": {whole(1, 0), whole(), []Decision{{Outcome: Admitted}, {Outcome: Duplicate}}},
		"by both scopes": {whole(-1, -2), rows(whole(2, 3, 1, 999_999, 0), whole(1, 2, 50, 1, 5)), []Decision{
			{Outcome: Category, Tier: tier("1/1s"), Used: 1, RetryAfter: 999_999 * time.Microsecond},
			{Outcome: Global, Tier: tier("50/1m"), Used: 50, Reserved: 5, RetryAfter: time.Microsecond},
		}},
		"one refusal for two": {whole(-1, -1), rows(whole(1, 1, 7, 0, 0)), []Decision{
			{Outcome: Global, Tier: tier("100/30m"), Used: 7},
			{Outcome: Global, Tier: tier("100/30m"), Used: 7},
		}},
		"each its own": {whole(-1, -2), rows(whole(2, 1, 7, 0, 0), whole(3, 1, 8, 0, 0)), []Decision{
			{Outcome: Category, Tier: tier("20/30m"), Used: 7},
			{Outcome: Category, Tier: tier("10/30m"), Used: 8},
		}},
		"damaged": {whole(6, 9), whole(), []Decision{
			{Outcome: Damaged, Key: "{n}:category:errors"},
			{Outcome: Damaged, Key: "{n}:buckets:category:other"},
		}},
		"never": {whole(1, -1), rows(whole(1, 1, 0, -1, 0)), []Decision{{Outcome: Admitted}, {Outcome: Global, Tier: tier("100/30m"), Never: true}}},
	} {
		got, err := limiter.decode([]any{someTime, int64(0), test.verdicts, test.refusals, whole()}, batch, limiter.question(batch))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if difference := cmp.Diff(test.want, got.decisions); difference != "" {
			t.Errorf("%s (-want +got):\n%s", name, difference)
		}
	}
}

func TestDecodeNamesTheFieldThatIsWrongAndDecidesNothing(t *testing.T) {
	limiter, batch := decodingLimiter(t)
	verdicts, refusals := whole(1, -1), rows(whole(2, 1, 10, 5, 0))
	reply := func(fields ...any) []any { return fields }
	for name, test := range map[string]struct {
		reply any
		want  string
	}{
		"nil":                      {nil, "reply is a <nil>, expected a list"},
		"a text":                   {"1", "reply is a string, expected a list"},
		"a number":                 {int64(1), "reply is a int64, expected a list"},
		"empty":                    {reply(), "reply has 0 entries, expected 5"},
		"two fields":               {reply(someTime, int64(0)), "reply has 2 entries, expected 5"},
		"four fields":              {reply(someTime, int64(0), verdicts, refusals), "reply has 4 entries, expected 5"},
		"six fields":               {reply(someTime, int64(0), verdicts, refusals, whole(), int64(0)), "reply has 6 entries, expected 5"},
		"now as text":              {reply("1795149541123457", int64(0), verdicts, refusals, whole()), "now is a string, expected a whole number"},
		"now as a fraction":        {reply(1.5, int64(0), verdicts, refusals, whole()), "now is a float64"},
		"no lag":                   {reply(someTime, nil, verdicts, refusals, whole()), "lag is a <nil>"},
		"verdicts not a list":      {reply(someTime, int64(0), int64(1), refusals, whole()), "verdicts is a int64, expected a list"},
		"too few verdicts":         {reply(someTime, int64(0), whole(1), refusals, whole()), "verdicts has 1 entries, expected 2"},
		"too many verdicts":        {reply(someTime, int64(0), whole(1, 1, 1), refusals, whole()), "verdicts has 3 entries, expected 2"},
		"a verdict as text":        {reply(someTime, int64(0), []any{int64(1), "1"}, refusals, whole()), "verdict is a string, expected a whole number"},
		"a verdict that is true":   {reply(someTime, int64(0), []any{int64(1), true}, refusals, whole()), "verdict is a bool"},
		"a verdict that is nil":    {reply(someTime, int64(0), []any{nil, int64(1)}, refusals, whole()), "verdict is a <nil>"},
		"a verdict of 3":           {reply(someTime, int64(0), whole(1, 3), refusals, whole()), "verdict 3, expected 1, 0, the number of one of 1 refusals"},
		"a verdict that is no key": {reply(someTime, int64(0), whole(1, 10), refusals, whole()), "verdict 10, expected 1, 0"},
		"a key of no scope":        {reply(someTime, int64(0), whole(1, 4), refusals, whole()), "verdict 4, expected 1, 0"},
		"no such refusal":          {reply(someTime, int64(0), whole(1, -2), refusals, whole()), "verdict -2, expected 1, 0, the number of one of 1 refusals"},
		"a refusal of none":        {reply(someTime, int64(0), verdicts, whole(), whole()), "verdict -1, expected 1, 0, the number of one of 0 refusals"},
		"the lowest verdict":       {reply(someTime, int64(0), whole(1, math.MinInt64), refusals, whole()), "verdict -9223372036854775808, expected"},
		"the highest verdict":      {reply(someTime, int64(0), whole(1, math.MaxInt64), refusals, whole()), "verdict 9223372036854775807, expected"},
		"refusals not a list":      {reply(someTime, int64(0), verdicts, "none", whole()), "refusals is a string, expected a list"},
		"refusals that are nil":    {reply(someTime, int64(0), verdicts, nil, whole()), "refusals is a <nil>"},
		"half a refusal":           {reply(someTime, int64(0), verdicts, rows(whole(1, 1)), whole()), "refusal has 2 entries, expected 5"},
		"a refusal and a half":     {reply(someTime, int64(0), verdicts, rows(whole(2, 1, 10, 5, 0, 1)), whole()), "refusal has 6 entries, expected 5"},
		"a refusal with a text":    {reply(someTime, int64(0), verdicts, rows([]any{int64(1), "1", int64(10), int64(5), int64(0)}), whole()), "refusal is a string, expected a whole number"},
		"scope 4":                  {reply(someTime, int64(0), verdicts, rows(whole(4, 1, 10, 5, 0)), whole()), "scope 4, expected 1 to 3"},
		"scope 0":                  {reply(someTime, int64(0), verdicts, rows(whole(0, 1, 10, 5, 0)), whole()), "scope 0, expected 1 to 3"},
		"tier 0":                   {reply(someTime, int64(0), verdicts, rows(whole(3, 0, 10, 5, 0)), whole()), "tier 0, expected 1 to 1"},
		"tier 9":                   {reply(someTime, int64(0), verdicts, rows(whole(1, 9, 10, 5, 0)), whole()), "tier 9, expected 1 to 2"},
		"another category's tier":  {reply(someTime, int64(0), verdicts, rows(whole(3, 3, 10, 5, 0)), whole()), "tier 3, expected 1 to 1"},
		"negative used":            {reply(someTime, int64(0), verdicts, rows(whole(2, 1, -1, 5, 0)), whole()), "used -1, wait 5 and kept 0, expected no negative number"},
		"negative wait":            {reply(someTime, int64(0), verdicts, rows(whole(2, 1, 10, -2, 0)), whole()), "used 10, wait -2 and kept 0, expected no negative number"},
		"earlier no list":          {reply(someTime, int64(0), verdicts, refusals, int64(1)), "earlier is a int64, expected a list"},
		"half an earlier one":      {reply(someTime, int64(0), verdicts, refusals, whole(1)), "earlier has 1 entries, expected two for each event"},
		"earlier event 0":          {reply(someTime, int64(0), verdicts, refusals, whole(0, 5)), "event 0 was admitted earlier, expected one of 2"},
		"earlier event 3":          {reply(someTime, int64(0), verdicts, refusals, whole(3, 5)), "event 3 was admitted earlier, expected one of 2"},
		"refused, and earlier":     {reply(someTime, int64(0), verdicts, refusals, whole(2, 5)), "event 2 was admitted earlier, expected one of 2 that is admitted"},
		"earlier as text":          {reply(someTime, int64(0), verdicts, refusals, []any{int64(1), "5"}), "admission is a string, expected a whole number"},
		"earlier event as text":    {reply(someTime, int64(0), verdicts, refusals, []any{"1", int64(5)}), "event is a string, expected a whole number"},
		"negative kept":            {reply(someTime, int64(0), verdicts, rows(whole(1, 1, 10, 2, -1)), whole()), "used 10, wait 2 and kept -1, expected no negative number"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := limiter.decode(test.reply, batch, limiter.question(batch))
			if got.decisions != nil || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%+v, %v; expected an error that says %q", got, err, test.want)
			}
		})
	}
}

func TestDecodeReadsWhenEventsWereAdmittedEarlier(t *testing.T) {
	limiter, batch := decodingLimiter(t)
	got, err := limiter.decode([]any{someTime, int64(0), whole(0, 1), whole(), whole(2, someTime-7)}, batch, limiter.question(batch))
	if want := map[int]int64{1: someTime - 7}; err != nil || got.now != someTime || !cmp.Equal(got.earlier, want) {
		t.Errorf("%+v, %v; expected %v at %d", got, err, want, someTime)
	}
}

func TestTheZeroDecisionIsNoAdmission(t *testing.T) {
	if (Decision{}).Outcome == Admitted {
		t.Error("a decision that nobody has made admits")
	}
}
