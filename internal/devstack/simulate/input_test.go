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

// event formats an event for comparison.
func event(e simulate.Event) string {
	return strings.Join([]string{e.Time.Format(time.RFC3339Nano), e.Category, e.ID, strings.Repeat("$", e.Cost)}, " ")
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
	if input.Events[2].Line != 4 || input.Other+input.Unread+input.Undecided != 0 {
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

// The concatenated logs of two workers become one history. Events of the same time keep the order of their
// lines.
func TestReadSortsByTime(t *testing.T) {
	t.Parallel()
	replica := func(i int) string { return at(time.Duration(i/2)*time.Second, "a") }
	input := read(t, repeat(100, replica)+repeat(100, replica))
	latest, line := began.Add(-time.Second), 0
	for _, e := range input.Events {
		if e.Time.Before(latest) || e.Time.Equal(latest) && e.Line < line {
			t.Fatalf("line %d at %s stands behind line %d at %s", e.Line, e.Time, line, latest)
		}
		latest, line = e.Time, e.Line
	}
	if len(input.Events) != 200 {
		t.Errorf("%d events, expected 200", len(input.Events))
	}
}

func TestBadLines(t *testing.T) {
	t.Parallel()
	const when = `{"time":"2026-11-20T04:39:01Z",`
	for line, want := range map[string]string{
		`disk full`:                                                           `is not a JSON object, expected an event or a line of a worker's log (LOG_FORMAT=json)`,
		`{"time":"2026-11-20T04:39:`:                                          `is broken JSON: `,
		"{\"category\":\"\xff\"}":                                             `is not valid UTF-8`,
		`{"category":"a"}`:                                                    `has a category but no time, expected both`,
		`{"time":17,"category":"a"}`:                                          `time 17, expected a string`,
		`{"time":"now","category":"a"}`:                                       `time "now", expected RFC 3339 such as 2026-11-20T04:39:01Z`,
		`{"time":"2201-01-01T00:00:00Z","category":"a"}`:                      `time "2201-01-01T00:00:00Z", expected a year from 1970 to 2200`,
		when + `"category":"` + strings.Repeat("c", 129) + `"}`:               `category of 129 bytes, expected 1 to 128`,
		when + `"category":"a","id":"\u0000"}`:                                `id of 1 byte, expected at most 256 without control characters`,
		when + `"category":"a","id":7}`:                                       `id 7, expected a string`,
		when + `"category":"a\nb"}`:                                           `category of 3 bytes, expected 1 to 128 without control characters and wildcards`,
		when + `"category":">"}`:                                              `category of 1 byte, expected 1 to 128 without control characters and wildcards`,
		`{"ts":"2026-11-20T04:39:01Z","msg":"notification sent","outcome":1}`: `outcome 1, expected a string`,
		`[1]`:                             `is not a JSON object, `,
		when + `"category":"a"} {}`:       `is broken JSON: `,
		when + `"category":"a","cost":0}`: `cost 0, expected a whole number of 1 or more`,
		`{"ts":"2026-11-20T04:39:01Z","msg":"notification lost","outcome":"lost"}`: `outcome "lost", expected sent, dropped or dead`,
		when + `"category":"` + strings.Repeat("c", 1<<20) + `"}`:                  `has more than 1048576 bytes`,
	} {
		text := at(0, "a") + "\n" + line + "\n" + at(1, "a") + line
		input := read(t, text)
		if len(input.Events) != 2 || input.Unread != 2 {
			t.Errorf("%.80s: %d events and %d unread lines, expected 2 and 2", line, len(input.Events), input.Unread)
			continue
		}
		for i, prefix := range []string{"line 3: ", "line 5: "} {
			if got := input.Bad[i].Error(); !strings.HasPrefix(got, prefix+want) || len(got) > 200 {
				t.Errorf("%.80s: %.300s, expected %s%s", line, got, prefix, want)
			}
		}
	}
}

// `docker compose logs` adds a prefix to each line and includes lines of other services.
func TestComposeLogs(t *testing.T) {
	t.Parallel()
	const sent = `{"level":"info","ts":"2026-11-20T07:21:25.175896Z","msg":"notification sent","event_id":"e",` +
		`"category":"errors","outcome":"sent"}`
	input := read(t, "notifier-1  | "+sent+"\nnotifier-12 | "+sent+"\r\n"+
		"notifier-1  | 2026-11-20T07:21:25.175896123Z "+sent+"\n"+
		"\x1b[36mnotifier-1  | \x1b[0m"+sent+"\n"+
		"nats-1      | [1] 2026/11/20 07:21:25.1 [INF] Server is ready\nredis-1     | \n"+
		`nats-1      | {"level":"info","msg":"of another program"}`+"\n"+
		`notifier-1  | {"level":"info","ts":"2026-11-2`)
	if len(input.Events) != 4 || input.Other != 2 || input.Unread != 1 {
		t.Fatalf("%d events, %d other and %d unread lines, expected 4, 2 and 1", len(input.Events), input.Other, input.Unread)
	}
	if got := input.Bad[0].Error(); !strings.HasPrefix(got, "line 8: is broken JSON") {
		t.Errorf("%s, expected that line 8 is broken", got)
	}
	for i, e := range input.Events {
		if e.Category != "errors" || e.ID != "e" || e.Line != i+1 {
			t.Errorf("%+v, expected the event of line %d", e, i+1)
		}
	}
}

func TestAnInputWithoutEvents(t *testing.T) {
	t.Parallel()
	for text, lines := range map[string]string{"": "0 lines", "\n\n": "2 lines", `{"msg":"waiting"}`: "1 line"} {
		_, err := simulate.Read(t.Context(), strings.NewReader(text))
		if err == nil || !strings.HasPrefix(err.Error(), "no event in "+lines+", expected lines such as {") {
			t.Errorf("%q: %v, expected that there is no event in %s", text, err, lines)
		}
	}
}

func TestReadEndsWithItsReaderAndItsContext(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken pipe")
	if _, err := simulate.Read(t.Context(), iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("%v, expected the reader's error", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := simulate.Read(ctx, strings.NewReader(at(0, "a"))); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, expected the context's error", err)
	}
}
