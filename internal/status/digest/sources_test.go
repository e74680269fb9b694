package digest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"notifier/internal/status/stats"
	"notifier/test/kit"
)

// A digest blames a source only for what it has certainly caused in the digest's own time.
func TestWhoIsBlamed(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 5, 0, 0, time.UTC)
	count := func(source string, refused int64) stats.SourceCount {
		return stats.SourceCount{Category: "errors", Source: source, Refused: refused, Total: refused + 5000, Sent: 5000}
	}
	// slots are the last ones, the newest last: it began at 12:00.
	slots := func(counts ...[]stats.SourceCount) []stats.SourceSlot {
		all := make([]stats.SourceSlot, 7)
		for i := range all {
			start := now.Truncate(time.Hour).Add(time.Duration(i-6) * 10 * time.Minute)
			all[i] = stats.SourceSlot{Start: start, End: start.Add(10 * time.Minute)}
			if at := i - (len(all) - len(counts)); at >= 0 {
				all[i].Counts = counts[at]
			}
		}
		return all
	}
	type list = []stats.SourceCount
	for name, test := range map[string]struct {
		period time.Duration
		slots  []stats.SourceSlot
		n      int64
		want   string
	}{
		"nothing is known":                    {30 * time.Minute, nil, 400, ""},
		"all of it":                           {30 * time.Minute, slots(list{count("a", 400)}), 400, "all from a"},
		"the one event":                       {30 * time.Minute, slots(list{count("a", 1)}), 1, "from a"},
		"most of it":                          {30 * time.Minute, slots(list{count("a", 150)}, list{count("a", 100), count("b", 150)}), 400, "most from a"},
		"half is not most":                    {30 * time.Minute, slots(list{count("a", 200), count("b", 200)}), 400, ""},
		"events without a source count":       {30 * time.Minute, slots(list{count("a", 100), count("", 300)}), 400, ""},
		"not those that were sent":            {30 * time.Minute, slots(list{count("a", 0), count("b", 400)}), 400, "all from b"},
		"many":                                {30 * time.Minute, slots(list{count("a", 20), count(stats.OtherSource, 380)}), 400, "most from many sources"},
		"before its time":                     {5 * time.Minute, slots(list{count("a", 5000)}, list{count("b", 10)}), 10, "all from b"},
		"perhaps before its time":             {time.Minute, slots(list{count("a", 5000), count("b", 10)}), 10, ""},
		"the same before its time":            {time.Minute, slots(list{count("a", 5000)}), 10, "all from a"},
		"a day, most within the hour":         {24 * time.Hour, slots(list{count("a", 300)}), 400, "most from a"},
		"a day, some within the hour":         {24 * time.Hour, slots(list{count("a", 300), count("b", 10)}), 1000, "in the last hour most from a"},
		"a day, little within the hour":       {24 * time.Hour, slots(list{count("a", 99)}), 1000, ""},
		"a day, nobody has most of the hour":  {24 * time.Hour, slots(list{count("a", 300), count("", 300)}), 1000, ""},
		"not what is more than an hour ago":   {24 * time.Hour, slots(list{count("a", 300)}, nil, nil, nil, nil, nil, list{count("b", 20)}), 1000, ""},
		"all of the hour is known":            {50 * time.Minute, slots(list{count("a", 300)}), 1000, ""},
		"another category":                    {30 * time.Minute, slots(list{{Category: "deploys", Source: "a", Refused: 400}}), 400, ""},
		"it can ping nobody":                  {30 * time.Minute, slots(list{count("<!channel> \u202e*a*", 400)}), 400, "all from &lt;!channel&gt; ?*a*"},
		"a long name":                         {30 * time.Minute, slots(list{count(strings.Repeat("é", 64), 400)}), 400, "all from " + strings.Repeat("é", 59) + "…"},
		"a name that a publisher has made up": {30 * time.Minute, slots(list{count("__other", 400)}), 400, "all from __other"},
	} {
		if got := (blame{test.slots, now.Add(-test.period)}).mostOf("errors", test.n); got != test.want {
			t.Errorf("%s: %q, expected %q", name, got, test.want)
		}
	}
}

// What recorders count is what the digest names, and without an answer it names nobody.
func TestADigestNamesSources(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		recorder := w.recorder("r1", nil)
		for range 7 {
			recorder.Observe("dropped", "category", "errors", "https://ci.example/<1>", 1, time.Now())
		}
		recorder.Observe("dropped", "category", "errors", "b", 1, time.Now())
		recorder.Observe("dropped", "global", "deploys", "", 1, time.Now())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		recorder.Run(ctx)
		w.old()
		reader, err := stats.NewReader(w.redis, "n")
		kit.Check(t, err)
		w.digest(false, func(config *Config) { config.Sources = reader.Sources }).turn(t.Context())
		texts := w.messages(1)
		const want = "9 events were not sent: 8 of errors (its limit 10/30m; most from https://ci.example/&lt;1&gt;) and 1 of deploys (the global limit 100/30m)."
		if !strings.Contains(texts[0], want) {
			t.Errorf("%s, expected %s", texts[0], want)
		}
	})
}

// What cannot be known is left out.
func TestWhatIsNotKnownIsLeftOut(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		known := true
		d := w.digest(true, func(c *Config) {
			c.NextFree = func(context.Context) (time.Duration, error) {
				if !known {
					return 0, errors.New("no")
				}
				return 7 * time.Minute, nil
			}
			c.Sources = func(context.Context) ([]stats.SourceSlot, error) { return nil, errors.New("no") }
		})
		for _, want := range []string{". Next free global slot: <!date^", "5 of errors (the global limit 100/30m)."} {
			w.drop("global", "errors", 5)
			w.old()
			d.turn(t.Context())
			if texts := w.texts(); !strings.Contains(texts[len(texts)-1], want) || known == strings.HasSuffix(texts[len(texts)-1], want) {
				t.Errorf("%q, expected %q", texts, want)
			}
			known = false
		}
	})
}
