package term_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"notifier/internal/term"
	"notifier/test/kit"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0", 250*time.Millisecond + 400*time.Microsecond: "250ms", 4*time.Minute + 12*time.Second + 499*time.Millisecond: "4m12s",
		time.Hour: "1h", 90 * time.Minute: "1h30m", 20 * time.Minute: "20m", time.Hour + time.Second: "1h0m1s", 100 * time.Microsecond: "0",
	} {
		if got := term.Duration(d); got != want {
			t.Errorf("%v: %q, expected %q", d, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 5 << 20: "5.0 MiB", 3 << 60: "3072.0 PiB"} {
		if got := term.Size(bytes); got != want {
			t.Errorf("%d: %q, expected %q", bytes, got, want)
		}
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		term.Count(0, "event"): "0 events", term.Count(1, "event"): "1 event", term.Count(2, "event"): "2 events",
		term.Count(21, "category"): "21 categories", term.Count(1, "category"): "1 category", term.Count(int64(2), "more reply"): "2 more replies",
		term.Count(2, "address"): "2 addresses", term.Count(2, "batch"): "2 batches",
		term.CountAre(1, "slot"): "1 slot is", term.CountAre(2, "slot"): "2 slots are",
		term.List(nil): "", term.List([]string{"a"}): "a", term.List([]string{"a", "b"}): "a and b", term.List([]string{"a", "b", "c"}): "a, b and c",
	} {
		if got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}

func TestTables(t *testing.T) {
	t.Parallel()
	var words, numbers strings.Builder
	table := term.NewTable(&words)
	table.Row("a", "b")
	table.Row("longer", 1)
	kit.Check(t, table.Flush())
	if want := "a        b\nlonger   1\n"; words.String() != want {
		t.Errorf("%q, expected %q", words.String(), want)
	}
	table = term.NewNumberTable(&numbers)
	table.Row("ä", 1, 10)
	table.Row("bcd", 100, 2)
	kit.Check(t, table.Flush())
	if want := "   ä       1   10\n   bcd   100    2\n"; numbers.String() != want {
		t.Errorf("%q, expected %q", numbers.String(), want)
	}
}

func TestAPlainScreenIsPlain(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	screen := term.ScreenOf(&out)
	if screen != (term.Screen{}) || screen.Paint(term.Red, "x") != "x" || screen.Clear() != "" {
		t.Errorf("%+v, expected no colours and no orders where nobody is watching", screen)
	}
}

// No number has a tail, and none is cut short.
func TestSecondsHaveSixDecimals(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1_118 * time.Millisecond:           "1.118",
		time.Microsecond:                   "0.000001",
		0:                                  "0",
		31*24*time.Hour - time.Microsecond: "2678399.999999",
		-300 * time.Millisecond:            "-0.3",
		1_234_567_899 * time.Nanosecond:    "1.234567",
		412*time.Second + 500_001*time.Microsecond:     "412.500001",
		8*time.Hour + 100*time.Millisecond + time.Hour: "32400.1",
	} {
		got, err := json.Marshal(term.Seconds(d))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; expected %s", d, got, err, want)
		}
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text string
		max  int
		want string
	}{
		{"", 3, ""}, {"abcd", 4, "abcd"}, {"abcde", 4, "a…"}, {"abcd", 3, "…"}, {"éééé", 7, "éé…"},
		{"éééé", 6, "é…"}, {"👩👩👩", 10, "👩…"}, {"x👩", 4, "x…"}, {"abcd", 0, "…"},
		{strings.Repeat("\x80", 9), 8, "\x80\x80…"}, // no text, so there is no boundary to find
	} {
		if got := term.Cut(test.text, test.max); got != test.want {
			t.Errorf("%q to %d bytes: %q, expected %q", test.text, test.max, got, test.want)
		}
	}
}
