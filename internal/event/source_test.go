package event_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"notifier/internal/event"
	"notifier/internal/outcome"
)

// carriers lists each way in which an event names its source.
var carriers = map[string]func(source string) event.Message{
	"header":         func(source string) event.Message { return withHeader(message("x"), outcome.HeaderSource, source) },
	"structured":     func(source string) event.Message { return message(cloudEvent(source)) },
	"binary":         func(source string) event.Message { return binary("x", "ce-source", source) },
	"binary encoded": func(source string) event.Message { return binary("x", "ce-source", url.PathEscape(source)) },
	"with a header besides": func(source string) event.Message {
		return withHeader(message(cloudEvent(source)), "notifier-source", "not the CloudEvent's")
	},
}

func cloudEvent(source string) string {
	encoded, err := json.Marshal(source)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"specversion":"1.0","id":"c-1","source":%s,"type":"t","data":"x"}`, encoded)
}

func TestDecodeSource(t *testing.T) {
	for carrier, made := range carriers {
		for source, want := range map[string]string{
			"https://me:hunter2@ci.example/job1":  "https://ci.example/job1",
			"see\nhttps://hunter2@ci.example/x y": "see\ufffdhttps://ci.example/x y",
			" Küche ":                             "Küche",
			"a\nb\x1b[2J\u202ec\u200bd":           "a\ufffdb\ufffd[2J\ufffdc\ufffdd",
			"<!channel> & <http://x>":             "<!channel> & <http://x>", // escaped where it is shown
			"x" + strings.Repeat("é", 200):        "x" + strings.Repeat("é", 62) + "…",
			// the beginning of a user looks like a host
			"https://" + strings.Repeat("hunter2", 30) + "@ci.example/x": "https://ci.example/x",
			"https://me:" + strings.Repeat("hunter2", 500) + "@h/x":      "https://[redacted]",
		} {
			if carrier == "binary" && strings.ContainsAny(source, "%\"") {
				continue
			}
			m := made(source)
			limits := rules(t)
			limits.MaxBytes = 1 << 20
			got, rejection := event.Decode(m, limits)
			if rejection != nil || got.Source != want {
				t.Errorf("%s %.60q: %q, expected %q; %v", carrier, source, got.Source, want, rejection)
			}
			if carrier != "header" && got.IDSource != source && carrier != "binary" { // a header's value is trimmed
				t.Errorf("%s: the identity of %.60q is %.60q", carrier, source, got.IDSource)
			}
		}
	}
}

// A source is known, as far as headers have it, where nothing else is.
func TestARejectedEventHasASource(t *testing.T) {
	large := strings.Repeat("x", maxBytes+1)
	for name, tc := range map[string]struct {
		message event.Message
		want    string
	}{
		"too large":                 {withHeader(message(large), "Notifier-Source", "ci"), "ci"},
		"too large and binary":      {binary(large), "/db"},
		"broken":                    {withHeader(message(`{"text":`), "notifier-SOURCE", "ci"), "ci"},
		"a CloudEvent without type": {message(`{"specversion":"1.0","id":"c-1","source":"/db"}`), "/db"},
		"no UTF-8":                  {withHeader(message("\xff"), "Notifier-Source", "a\xffb"), "a\ufffdb"},
		"binary, not UTF-8":         {binary("x", "ce-source", "a%ff"), "a\ufffd"},
		"no source":                 {message(`{"text":`), ""},
	} {
		got, rejection := event.Decode(tc.message, rules(t))
		if rejection == nil || got.Source != tc.want {
			t.Errorf("%s: %q with %v, expected %q", name, got.Source, rejection, tc.want)
		}
	}
}

// A long source is truncated before any other processing, so it costs as little as a short one.
func TestALongSourceCostsNoMore(t *testing.T) {
	limits := rules(t)
	cost := func(source string) uint64 {
		m := withHeader(message("x"), outcome.HeaderSource, source)
		least := uint64(1 << 40)
		for range 20 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, rejection := event.Decode(m, limits)
			runtime.ReadMemStats(&after)
			if rejection != nil || len(got.Source) == 0 || len(got.Source) > 128 {
				t.Fatalf("%q, %v", got.Source, rejection)
			}
			least = min(least, after.TotalAlloc-before.TotalAlloc)
		}
		return least
	}
	for _, piece := range []string{"é", "a:b@=?#://xox", "\xff", "token=a "} {
		short, long := cost(strings.Repeat(piece, 1<<11/len(piece))), cost(strings.Repeat(piece, 1<<20/len(piece)))
		// no copy of all of it; with the race detector pools forget at random, which is up to 100 KiB
		if long > short+1<<19 {
			t.Errorf("%q: %d bytes are allocated for 1 MiB, %d for 2 KiB", piece, long, short)
		}
	}
}

// FuzzSource: for any source, the shown text is bounded, printable and without the secret, and the event is
// not rejected.
func FuzzSource(f *testing.F) {
	f.Add("https://me:", "@ci.example/x?y=1#z=2")
	f.Add("\xf0\x9f\x91\u202e\n", " token=x xoxb-1 <!channel>")
	f.Fuzz(func(t *testing.T, before, after string) {
		for _, secret := range []string{"https://u:S3CRET0@h/", "https://S3CRET0@h", "//u:S3/S3CRET0@h"} {
			got, rejection := event.Decode(withHeader(message("x"), outcome.HeaderSource, before+" "+secret+" "+after), rules(t))
			if rejection != nil {
				t.Fatal(rejection)
			}
			unsafe := func(r rune) bool { return !unicode.IsPrint(r) && r != utf8.RuneError }
			if len(got.Source) > 128 || !utf8.ValidString(got.Source) || strings.ContainsFunc(got.Source, unsafe) || strings.Contains(got.Source, "S3CRET0") {
				t.Errorf("%q and %q around %q: %q", before, after, secret, got.Source)
			}
		}
	})
}
