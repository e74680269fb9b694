package ratelimit

import (
	"errors"
	"maps"
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

func TestDecodeDecisions(t *testing.T) {
	limiter, batch := decodingLimiter(t)
	tier := func(text string) Tier {
		limit, _ := ParseLimit(text)
		return limit[0]
	}
	for name, test := range map[string]struct {
		verdicts, refusals []any
		want               []Decision
	}{
		"sent and duplicate": {whole(1, 0), whole(), []Decision{{Verdict: Admitted}, {Verdict: Duplicate}}},
		"by both scopes": {whole(-1, -2), rows(whole(2, 3, 1, 999_999, 0, 0), whole(1, 2, 50, 1, 5, 1)), []Decision{
			{Verdict: Category, Tier: tier("1/1s"), Used: 1, RetryAfter: 999_999 * time.Microsecond},
			{Verdict: Global, Tier: tier("50/1m"), Used: 50, Reserved: 5, RetryAfter: time.Microsecond, AtLeast: true},
		}},
		"one refusal for two": {whole(-1, -1), rows(whole(1, 1, 7, 0, 0, 0)), []Decision{
			{Verdict: Global, Tier: tier("100/30m"), Used: 7},
			{Verdict: Global, Tier: tier("100/30m"), Used: 7},
		}},
		"each its own": {whole(-1, -2), rows(whole(2, 1, 7, 0, 0, 0), whole(3, 1, 8, 0, 0, 0)), []Decision{
			{Verdict: Category, Tier: tier("20/30m"), Used: 7},
			{Verdict: Category, Tier: tier("10/30m"), Used: 8},
		}},
		"never": {whole(1, -1), rows(whole(1, 1, 0, -1, 0, 0)), []Decision{
			{Verdict: Admitted}, {Verdict: Global, Tier: tier("100/30m"), Never: true},
		}},
	} {
		reply := []any{"decided", someTime, int64(0), test.verdicts, test.refusals, whole(), whole()}
		got, err := limiter.newAdmitCall(batch, anyStore).decode(reply)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if difference := cmp.Diff(test.want, got.decisions); difference != "" {
			t.Errorf("%s (-want +got):\n%s", name, difference)
		}
	}
}

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
		"a text":                     {"1", "reply is a string, expected a list"},
		"a number":                   {int64(1), "reply is a int64, expected a list"},
		"empty":                      {fields(), "an empty reply, expected a status word"},
		"no word":                    {fields(someTime, int64(0), verdicts, refusals, whole()), "status is a int64, expected a word"},
		"another word":               {fields("recorded", someTime), `"recorded", expected decided`},
		"a word alone":               {fields("decided"), "reply has 1 entries, expected 7"},
		"six fields":                 {given(int64(1))[:6], "reply has 6 entries, expected 7"},
		"eight fields":               {append(given(int64(1)), int64(0)), "reply has 8 entries, expected 7"},
		"now as text":                {fields("decided", "1795149541123457", int64(0), verdicts, refusals, whole(), whole()), "now is a string"},
		"now as a fraction":          {fields("decided", 1.5, int64(0), verdicts, refusals, whole(), whole()), "now is a float64"},
		"no lag":                     {fields("decided", someTime, nil, verdicts, refusals, whole(), whole()), "lag is a <nil>"},
		"verdicts not a list":        {decided(int64(1), refusals, whole()), "verdicts is a int64, expected a list"},
		"too few verdicts":           {decided(whole(1), refusals, whole()), "verdicts has 1 entries, expected 2"},
		"too many verdicts":          {decided(whole(1, 1, 1), refusals, whole()), "verdicts has 3 entries, expected 2"},
		"a verdict as text":          {given("1"), "verdict is a string, expected a whole number"},
		"a verdict that is true":     {given(true), "verdict is a bool"},
		"a verdict that is nil":      {given(nil), "verdict is a <nil>"},
		"a verdict of 3":             {given(int64(3)), "verdict 3, expected 1, 0 or the number of one of 1 refusals"},
		"no such refusal":            {given(int64(-2)), "verdict -2, expected 1, 0 or the number of one of 1 refusals"},
		"a refusal of none":          {decided(verdicts, whole(), whole()), "verdict -1, expected 1, 0 or the number of one of 0"},
		"the lowest verdict":         {given(int64(math.MinInt64)), "verdict -9223372036854775808, expected"},
		"the highest verdict":        {given(int64(math.MaxInt64)), "verdict 9223372036854775807, expected"},
		"refusals not a list":        {decided(verdicts, "none", whole()), "refusals is a string, expected a list"},
		"refusals that are nil":      {decided(verdicts, nil, whole()), "refusals is a <nil>"},
		"half a refusal":             {refused(1, 1), "refusal has 2 entries, expected 6"},
		"a refusal and a half":       {refused(2, 1, 10, 5, 0, 0, 1), "refusal has 7 entries, expected 6"},
		"a refusal with a text":      {decided(verdicts, rows(append(whole(1, 1, 10, 5, 0), "1")), whole()), "refusal is a string"},
		"scope 4":                    {refused(4, 1, 10, 5, 0, 0), "scope 4, expected 1 to 3"},
		"scope 0":                    {refused(0, 1, 10, 5, 0, 0), "scope 0, expected 1 to 3"},
		"tier 0":                     {refused(3, 0, 10, 5, 0, 0), "tier 0, expected 1 to 1"},
		"tier 9":                     {refused(1, 9, 10, 5, 0, 0), "tier 9, expected 1 to 2"},
		"another category's tier":    {refused(3, 3, 10, 5, 0, 0), "tier 3, expected 1 to 1"},
		"negative used":              {refused(2, 1, -1, 5, 0, 0), "used -1, wait 5 and kept 0, expected no negative number"},
		"negative wait":              {refused(2, 1, 10, -2, 0, 0), "used 10, wait -2 and kept 0, expected no negative number"},
		"negative kept":              {refused(1, 1, 10, 2, -1, 0), "used 10, wait 2 and kept -1, expected no negative number"},
		"earlier no list":            {earlier(int64(1)), "earlier is a int64, expected a list"},
		"half an earlier one":        {earlier(whole(1)), "earlier has 1 entries, expected 2 each"},
		"earlier event 0":            {earlier(whole(0, 5)), "event 0 was admitted earlier, expected one of 2"},
		"earlier event 3":            {earlier(whole(3, 5)), "event 3 was admitted earlier, expected one of 2"},
		"refused, and earlier":       {earlier(whole(2, 5)), "event 2 was admitted earlier, expected one of 2 that is admitted"},
		"earlier as text":            {earlier([]any{int64(1), "5"}), "admission is a string, expected a whole number"},
		"earlier event as text":      {earlier([]any{"1", int64(5)}), "event is a string, expected a whole number"},
		"posted no list":             {posted("p"), "again is a string, expected a list"},
		"half a post":                {posted(whole(2, 1)), "again has 2 entries, expected 4 each"},
		"posted event 0":             {posted([]any{int64(0), int64(1), int64(5), "p"}), "expected one of 2 events and its posts"},
		"posted event 3":             {posted([]any{int64(3), int64(1), int64(5), "p"}), "expected one of 2 events and its posts"},
		"a negative number of posts": {posted([]any{int64(2), int64(-1), int64(5), "p"}), "expected one of 2 events and its posts"},
		"a post before 1970":         {posted([]any{int64(2), int64(1), int64(-5), "p"}), "expected one of 2 events and its posts"},
		"a post without a name":      {posted(whole(2, 1, 5, 7)), "expected one of 2 events and its posts"},
		"posts as text":              {posted([]any{int64(2), "1", int64(5), "p"}), "again is a string, expected a whole number"},
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

func TestDecodeReadsEarlierAdmissions(t *testing.T) {
	limiter, batch := decodingLimiter(t)
	reply := []any{"decided", someTime, int64(0), whole(0, 1), whole(), whole(2, someTime-7), whole()}
	got, err := limiter.newAdmitCall(batch, anyStore).decode(reply)
	if want := map[int]int64{1: someTime - 7}; err != nil || got.now != someTime || !cmp.Equal(got.earlier, want) {
		t.Errorf("%+v, %v; expected %v at %d", got, err, want, someTime)
	}
}

func TestDecodeReadsEarlierPosts(t *testing.T) {
	limiter, batch := decodingLimiter(t)
	refusals := rows(whole(1, 1, 7, 0, 0, 0))
	posted := []any{int64(1), int64(2), someTime - 9, "p2", int64(2), int64(3), someTime - 8, ""}
	reply := []any{"decided", someTime, int64(0), whole(-1, 1), refusals, whole(), posted}
	got, err := limiter.newAdmitCall(batch, anyStore).decode(reply)
	want := map[int]posts{0: {2, someTime - 9, "p2"}, 1: {3, someTime - 8, ""}}
	if err != nil || !maps.Equal(got.again, want) {
		t.Fatalf("%+v, %v; expected %v", got, err, want)
	}
	if refused := got.decisions[0]; refused.Posts != 2 || refused.LastPost != "p2" {
		t.Errorf("%+v, expected a refusal after two posts", refused)
	}
	if admitted := got.decisions[1]; admitted != (Decision{Verdict: Admitted}) {
		t.Errorf("%+v, expected an admission and no more", admitted)
	}
}

func TestZeroDecisionIsNoAdmission(t *testing.T) {
	if (Decision{}).Verdict == Admitted {
		t.Error("a decision that nobody has made admits")
	}
}
