package simulate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/devstack/simulate"
)

// event writes an event as a test compares it.
func event(e simulate.Event) string {
	return strings.Join([]string{e.Time().Format(time.RFC3339Nano), e.Category, e.ID, strings.Repeat("$", e.Cost)}, " ")
}

func events(input simulate.Input) []string {
	var all []string
	for _, e := range input.Events {
		all = append(all, event(e))
	}
	return all
}

func TestRead(t *testing.T) {
	t.Parallel()
	input := read(t, "\uFEFF"+`{"time":"2026-11-20T04:39:01Z","category":"errors","cost":2,"id":"x","text":"disk full"}
 {"category":"errors.db","time":"2026-11-20T05:39:01.1234567+01:00","cost":null,"id":null}

{"time":"2026-11-20T04:39:02Z","category":"a b","msg":"somebody's own"}`+"\r\n")
	want := []string{"2026-11-20T04:39:01Z errors x $$", "2026-11-20T04:39:01.123456Z errors.db  $", "2026-11-20T04:39:02Z a b  $"}
	if diff := cmp.Diff(want, events(input)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if input.Events[2].Line != 4 || input.OutOfOrder+input.Other+input.Bad+input.Undecided != 0 {
		t.Errorf("%+v, expected the third in line 4, and nothing to note", input)
	}
}

func TestLinesThatAreNotAboutEventsAreCounted(t *testing.T) {
	t.Parallel()
	input := read(t, at(0, "a")+`{"level":"warn","ts":"2026-11-20T07:21:25.176165Z","msg":"waiting","for":"redis","held":3}
{"level":"info","ts":"2026-11-20T07:21:25.176165Z","msg":"notification service listens"}
{"time":"2026-11-20T07:21:25.176165Z","level":"INFO","msg":"another program's"}
{"msg":17,"category":["of","another","program"]}
{}
{"level":"info","ts":"2026-11-20T07:21:25.176165Z","msg":"notification dropped","event_id":"e","category":"a","outcome":"dropped","reason":"expired"}
{"level":"warn","ts":"2026-11-20T07:21:25.176165Z","msg":"notification dead","event_id":"e","outcome":"dead","reason":"malformed"}
{"level":"info","ts":"2026-11-20T07:21:25.176165Z","msg":"notification dropped","event_id":"e","category":"a","outcome":"dropped","reason":"reply"}
`)
	if len(input.Events) != 1 || input.Other != 6 || input.Undecided != 2 {
		t.Errorf("%d events, %d other lines and %d undecided events, expected 1, 6 and 2", len(input.Events), input.Other, input.Undecided)
	}
}

// The logs of two replicas, one behind the other, are one history. Of the same time, the earlier line comes
// first.
func TestReadSortsByTime(t *testing.T) {
	t.Parallel()
	replica := func(i int) string { return at(time.Duration(i/2)*time.Second, "a") }
	input := read(t, repeat(100, replica)+repeat(100, replica))
	latest, line := began.Add(-time.Second), 0
	for _, e := range input.Events {
		if e.Time().Before(latest) || e.Time().Equal(latest) && e.Line < line {
			t.Fatalf("line %d at %s stands behind line %d at %s", e.Line, e.Time(), line, latest)
		}
		latest, line = e.Time(), e.Line
	}
	if len(input.Events) != 200 || input.OutOfOrder != 98 {
		t.Errorf("%d events with %d out of order, expected 200 with 98: the last two are as late as any", len(input.Events), input.OutOfOrder)
	}
}

func TestBadLines(t *testing.T) {
	t.Parallel()
	const when = `{"time":"2026-11-20T04:39:01Z",`
	for line, want := range map[string]string{
		`disk full`:                     `is not a JSON object, expected an event or a line of the worker's log (LOG_FORMAT=json)`,
		`[1]`:                           `is not a JSON object, `,
		`{"time":"2026-11-20T04:39:`:    `is broken JSON: `,
		when + `"category":"a"} {}`:     `is broken JSON: `,
		"{\"category\":\"\xff\"}":       `is not valid UTF-8`,
		`{"category":"a"}`:              `has a category but no time, expected both`,
		`{"time":17,"category":"a"}`:    `time 17, expected a string`,
		`{"time":"now","category":"a"}`: `time "now", expected RFC 3339 such as 2026-11-20T04:39:01Z`,
		`{"time":"2201-01-01T00:00:00Z","category":"a"}`:                           `time "2201-01-01T00:00:00Z", expected a year from 1970 to 2200`,
		when + `"category":"` + strings.Repeat("c", 129) + `"}`:                    `category of 129 bytes, expected 1 to 128`,
		when + `"category":"a\nb"}`:                                                `category of 3 bytes, expected 1 to 128 without control characters`,
		when + `"category":"a","id":7}`:                                            `id 7, expected a string`,
		when + `"category":"a","id":"\u0000"}`:                                     `id of 1 byte, expected at most 256 without control characters`,
		when + `"category":"a","id":"` + strings.Repeat("i", 257) + `"}`:           `id of 257 bytes, expected at most 256`,
		when + `"category":"a","cost":0}`:                                          `cost 0, expected a whole number of 1 or more`,
		`{"ts":"2026-11-20T04:39:01Z","msg":"notification lost","outcome":"lost"}`: `outcome "lost", expected sent, dropped or dead`,
		`{"ts":"2026-11-20T04:39:01Z","msg":"notification sent","outcome":1}`:      `outcome 1, expected a string`,
		when + `"category":"` + strings.Repeat("c", 1<<20) + `"}`:                  `has more than 1048576 bytes`,
	} {
		text := at(0, "a") + "\n" + line + "\n" + at(1, "a")
		_, err := simulate.Read(t.Context(), strings.NewReader(text), false)
		if err == nil || !strings.HasPrefix(err.Error(), "line 3: "+want) {
			t.Errorf("%.80s: %v, expected line 3: %s", line, err, want)
		} else if len(err.Error()) > 200 {
			t.Errorf("%.80s: an error of %d bytes", line, len(err.Error()))
		}
		if len(line) > 1<<20 {
			continue // the line has an arbitrary rest
		}
		input, err := simulate.Read(t.Context(), strings.NewReader(text+line), true)
		if err != nil || input.Bad != 2 || len(input.Events) != 2 || !strings.HasPrefix(input.FirstBad.Error(), "line 3: "+want) {
			t.Errorf("%.80s: %v and %+v, expected two bad lines to be skipped", line, err, input)
		}
	}
}

func TestAnInputWithoutEvents(t *testing.T) {
	t.Parallel()
	for text, lines := range map[string]string{"": "0 lines", "\n\n": "2 lines", `{"msg":"waiting"}`: "1 line"} {
		_, err := simulate.Read(t.Context(), strings.NewReader(text), false)
		if err == nil || !strings.HasPrefix(err.Error(), "no event in "+lines+", expected lines such as {") {
			t.Errorf("%q: %v, expected that there is no event in %s", text, err, lines)
		}
	}
}

func TestReadEndsWithItsReaderAndItsContext(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken pipe")
	if _, err := simulate.Read(t.Context(), iotest.ErrReader(broken), false); !errors.Is(err, broken) {
		t.Errorf("%v, expected the reader's error", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := simulate.Read(ctx, strings.NewReader(at(0, "a")), false); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, expected the context's error", err)
	}
}
