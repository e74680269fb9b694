package ratelimit

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
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

// whole returns a list of numbers as the client decodes it.
func whole(numbers ...int64) []any {
	list := make([]any, len(numbers))
	for i, number := range numbers {
		list[i] = number
	}
	return list
}

func rows(lists ...[]any) []any {
	rows := make([]any, len(lists))
	for i, list := range lists {
		rows[i] = list
	}
	return rows
}

const someTime = int64(1795149541123457)

func TestDecodeErrorNamesTheField(t *testing.T) {
	limiter, batch := decodingLimiter(t)
	verdicts, refusals := whole(1, -1), rows(whole(2, 1, 10, 5, 0, 0))
	fields := func(fields ...any) []any { return fields }
	decided := func(verdicts, refusals, earlier any) []any {
		return fields("decided", someTime, int64(0), verdicts, refusals, earlier, whole())
	}
	refused := func(numbers ...int64) []any { return decided(verdicts, rows(whole(numbers...)), whole()) }
	given := func(verdict any) []any { return decided([]any{int64(1), verdict}, refusals, whole()) }
	earlier := func(list any) []any { return decided(verdicts, refusals, list) }
	posted := func(list any) []any { return fields("decided", someTime, int64(0), verdicts, refusals, whole(), list) }
	for name, test := range map[string]struct {
		reply any
		want  string
	}{
		"nil":                        {nil, "reply is a <nil>, expected a list"},
		"empty":                      {fields(), "an empty reply, expected a status word"},
		"no word":                    {fields(someTime, int64(0), verdicts, refusals, whole()), "status is a int64, expected a word"},
		"another word":               {fields("recorded", someTime), `"recorded", expected decided`},
		"six fields":                 {given(int64(1))[:6], "reply has 6 entries, expected 7"},
		"eight fields":               {append(given(int64(1)), whole()), "reply has 8 entries, expected 7"},
		"now as text":                {fields("decided", "1795149541123457", int64(0), verdicts, refusals, whole(), whole()), "now is a string"},
		"verdicts not a list":        {decided(int64(1), refusals, whole()), "verdicts is a int64, expected a list"},
		"a verdict of 3":             {given(int64(3)), "verdict 3, expected 1, 0 or the number of one of 1 refusals"},
		"the lowest verdict":         {given(int64(math.MinInt64)), "verdict -9223372036854775808, expected"},
		"a refusal with a text":      {decided(verdicts, rows(append(whole(1, 1, 10, 5, 0), "1")), whole()), "refusal is a string"},
		"scope 4":                    {refused(4, 1, 10, 5, 0, 0), "scope 4, expected 1 to 3"},
		"scope 0":                    {refused(0, 1, 10, 5, 0, 0), "scope 0, expected 1 to 3"},
		"another category's tier":    {refused(3, 3, 10, 5, 0, 0), "tier 3, expected 1 to 1"},
		"negative used":              {refused(2, 1, -1, 5, 0, 0), "used -1, wait 5 and kept 0, expected no negative number"},
		"negative kept":              {refused(1, 1, 10, 2, -1, 0), "used 10, wait 2 and kept -1, expected no negative number"},
		"earlier no list":            {earlier(int64(1)), "readmitted is a int64, expected a list"},
		"earlier event 0":            {earlier(whole(0, 5)), "event 0 was admitted again, expected one of 2"},
		"refused, and earlier":       {earlier(whole(2, 5)), "event 2 was admitted again, expected one of 2 that is admitted"},
		"posted no list":             {posted("p"), "redecided is a string, expected a list"},
		"posted event 3":             {posted([]any{int64(3), int64(1), int64(5), "p"}), "expected one of 2 events and its posts"},
		"a negative number of posts": {posted([]any{int64(2), int64(-1), int64(5), "p"}), "expected one of 2 events and its posts"},
		"a post without a name":      {posted(whole(2, 1, 5, 7)), "expected one of 2 events and its posts"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := limiter.newAdmitCall(batch, anyStore).decode(test.reply)
			if got.decisions != nil || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%+v, %v; expected an error that says %q", got, err, test.want)
			}
		})
	}
}

func TestClosedStoreDecidesNothing(t *testing.T) {
	limiter, batch := decodingLimiter(t)
	for _, reply := range []any{[]any{"closed", someTime, int64(5)}, []any{"unknown store", someTime}} {
		got, err := limiter.newAdmitCall(batch, anyStore).decode(reply)
		if got.decisions != nil || !errors.Is(err, errHealing) {
			t.Errorf("%v: %+v, %v; expected errHealing", reply, got, err)
		}
	}
}

func TestZeroDecisionIsNoAdmission(t *testing.T) {
	if (Decision{}).Verdict == Admitted {
		t.Error("a decision that nobody has made admits")
	}
}

func TestDecodePermitErrors(t *testing.T) {
	for want, reply := range map[string]any{
		`reply has 3 entries, expected 4`:         []any{"post", int64(1), ""},
		`status is a int64, expected a word`:      []any{int64(1), int64(1), "", int64(9)},
		`status "Post", expected one`:             []any{"Post", int64(1), "", int64(9)},
		`"post" with 0, expected a number`:        []any{"post", int64(0), "", int64(9)},
		`"wait event" with -1, expected`:          []any{"wait event", int64(-1), "", int64(9)},
		`"not in flight" with 1, expected`:        []any{"not in flight", int64(1), "", int64(9)},
		`"post" with the name "p", expected none`: []any{"post", int64(1), "p", int64(9)},
		`expected no time above 1h0m0s`:           []any{"wait channel", int64(3_600_000_001), "", int64(9)},
	} {
		if got, err := decodePermit(reply); err == nil || !strings.Contains(err.Error(), want) || got != (permitted{}) {
			t.Errorf("%v: %+v, %v; expected an error that says %q", reply, got, err, want)
		}
	}
}

func TestDecodePausesErrors(t *testing.T) {
	if pauses, err := decodePauses([]any{"*", int64(math.MaxInt64)}); err == nil {
		t.Errorf("%+v, expected an error", pauses)
	}
}

func TestDecodeAnsweredErrors(t *testing.T) {
	for want, reply := range map[string]any{
		`reply has 2 entries, expected 3`:    []any{"none", int64(0)},
		`status "all", expected one`:         []any{"all", int64(0), int64(0)},
		`time is a string`:                   []any{"none", int64(0), ""},
		`"channel" with -1, expected a time`: []any{"channel", int64(-1), int64(0)},
		`expected a time from 0 to 1h0m0s`:   []any{"workspace", int64(3_600_000_001), int64(0)},
	} {
		if _, err := decodeAnswered(reply); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; expected an error that says %q", reply, err, want)
		}
	}
}
