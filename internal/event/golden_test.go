package event_test

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"notifier/internal/event"
	"notifier/test/kit"
)

var update = flag.Bool("update", false, "write testdata/*.golden instead of comparing with them")

// TestGolden decodes testdata/NAME.json with the headers in testdata/NAME.headers, if there are any, and compares the
// event with testdata/NAME.golden.
func TestGolden(t *testing.T) {
	for _, file := range goldenPayloads(t) {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			m := goldenMessage(t, file)
			e, rejection := event.Decode(m, goldenRules(t))
			if rejection != nil {
				t.Fatalf("rejected: %v", rejection)
			}
			got, err := json.MarshalIndent(e, "", "  ")
			kit.Check(t, err)
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				kit.Check(t, os.WriteFile(golden, append(got, '\n'), 0o644))
				return
			}
			want, err := os.ReadFile(golden)
			kit.Check(t, err)
			if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
				t.Errorf("event (-want +got), -update accepts it:\n%s", diff)
			}
			// The array is passed on byte for byte, whatever the publisher's layout.
			if e.Blocks != nil && !strings.Contains(string(m.Data), string(e.Blocks)) {
				t.Errorf("blocks are not as they were written:\n%s", e.Blocks)
			}
		})
	}
}

// TestGoldenCloudEventsAreValid holds the examples to the CloudEvents SDK's idea of an event.
func TestGoldenCloudEventsAreValid(t *testing.T) {
	seen := 0
	for _, file := range goldenPayloads(t) {
		if !strings.HasPrefix(filepath.Base(file), "cloudevent-structured") {
			continue
		}
		seen++
		var ce cloudevents.Event
		if err := json.Unmarshal(goldenMessage(t, file).Data, &ce); err != nil {
			t.Errorf("%s: %v", file, err)
		} else if err := ce.Validate(); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	if seen == 0 {
		t.Error("no structured CloudEvent among the examples")
	}
}

func goldenPayloads(tb testing.TB) []string {
	tb.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		tb.Fatalf("no examples: %v", err)
	}
	return files
}

func goldenRules(tb testing.TB) event.Rules {
	r := rules(tb)
	r.MaxBytes = 65536
	return r
}

func goldenMessage(tb testing.TB, file string) event.Message {
	tb.Helper()
	payload, err := os.ReadFile(file)
	kit.Check(tb, err)
	m := message(string(payload))
	headers, err := os.ReadFile(strings.TrimSuffix(file, ".json") + ".headers")
	if os.IsNotExist(err) {
		return m
	}
	kit.Check(tb, err)
	m.Header = map[string][]string{}
	for line := range strings.Lines(string(headers)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			tb.Fatalf("%s: header line %q, expected NAME: VALUE", file, line)
		}
		m.Header[name] = append(m.Header[name], value)
	}
	return m
}

// TestFormsAgree writes random events in each of the forms, with noise that must not matter, and expects the same
// event of all of them.
func TestFormsAgree(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		want := randomEvent(random)
		fields := map[string]any{"unknown": randomText(random), "Text": 5, "TYPE": nil}
		if want.Text != "" {
			fields["text"] = want.Text
		}
		if want.Blocks != nil {
			fields["blocks"] = want.Blocks
		}
		if want.Channel != "" {
			fields["channel"] = want.Channel
		}
		if want.ThreadTS != "" {
			fields["thread_ts"] = want.ThreadTS
		}
		if want.Cost != 1 || random.IntN(2) == 0 {
			fields["cost"] = want.Cost
		}
		body := mustJSON(t, fields)
		timeIn := want.Time.In(time.FixedZone("", (random.IntN(25)-12)*3600)).Format(time.RFC3339Nano)

		envelope := mustJSON(t, map[string]any{
			"specversion": "1.0", "id": want.ID, "source": "/s", "type": "t", "time": timeIn, "data": json.RawMessage(body),
		})
		fields["id"], fields["time"] = want.ID, timeIn
		randomCase := func(name string) string {
			b := []byte(name)
			for i := range b {
				if random.IntN(2) == 0 {
					b[i] = strings.ToUpper(string(b[i]))[0]
				}
			}
			return string(b)
		}
		for form, m := range map[string]event.Message{
			"JSON":       message(mustJSON(t, fields)),
			"structured": message(envelope),
			"binary": withHeader(message(body), randomCase("ce-specversion"), "1.0", randomCase("ce-source"), "/s", randomCase("ce-type"), "t",
				randomCase("ce-id"), percentEncode(want.ID), randomCase("ce-time"), timeIn),
		} {
			m.Subject = want.Subject
			if want.IDSource, want.Source = "/s", "/s"; form == "JSON" {
				want.IDSource, want.Source = "", ""
			}
			got, rejection := event.Decode(m, rules(t))
			if rejection != nil {
				t.Fatalf("seed %d: %s: %v\n%s", seed, form, rejection, m.Data)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d: %s: event (-want +got):\n%s\n%s", seed, form, diff, m.Data)
			}
		}
	}
}

func randomEvent(random *rand.Rand) event.Event {
	category := []string{"errors", "errors.db", "größe"}[random.IntN(3)]
	e := event.Event{
		ID: randomText(random), Category: category, Subject: "notify." + category, Text: randomText(random),
		Cost: 1 + random.IntN(20), Time: time.Unix(random.Int64N(253402300800), random.Int64N(1e9)).UTC(), Published: published(),
	}
	if random.IntN(2) == 0 {
		e.Channel = "C0123"
	}
	if random.IntN(2) == 0 {
		e.ThreadTS = "1234567890.123456"
	}
	if n := random.IntN(51); n > 0 {
		e.Blocks = json.RawMessage(repeatBlocks(n))
		if random.IntN(2) == 0 {
			e.Text = ""
		}
	}
	return e
}

// randomText is never blank, and is made of what an encoding might trip over.
func randomText(random *rand.Rand) string {
	pieces := []string{"a", "Z", "0", " ", `"`, `\`, "%", "%41", "{", "}", "<", "&", "ä", "€", "😀", "\u2028", "\uFFFD", "/", "+", ":"}
	text := "x"
	for range random.IntN(12) {
		text += pieces[random.IntN(len(pieces))]
	}
	return text + "y"
}

// percentEncode writes an attribute as the CloudEvents binding for NATS asks a publisher to.
func percentEncode(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(s) {
		if c <= ' ' || c == '"' || c == '%' || c > '~' {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func mustJSON(tb testing.TB, v any) string {
	tb.Helper()
	b, err := json.Marshal(v)
	kit.Check(tb, err)
	return string(b)
}
