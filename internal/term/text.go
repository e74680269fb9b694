package term

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Count is "1 event", "2 events" or "0 categories". The noun is an English one with a regular plural.
func Count[N int | int64 | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %s", n, plural(noun))
}

// CountAre is Count with its verb: "1 slot is", "2 slots are".
func CountAre[N int | int64 | uint64](n N, noun string) string {
	if n == 1 {
		return Count(n, noun) + " is"
	}
	return Count(n, noun) + " are"
}

// plural is "events", "categories", "addresses" or "batches".
func plural(noun string) string {
	stem, ends := strings.CutSuffix(noun, "y")
	switch {
	case ends && stem != "" && !strings.ContainsAny(stem[len(stem)-1:], "aeiou"):
		return stem + "ies"
	case strings.HasSuffix(noun, "s"),
		strings.HasSuffix(noun, "x"),
		strings.HasSuffix(noun, "ch"),
		strings.HasSuffix(noun, "sh"):
		return noun + "es"
	}
	return noun + "s"
}

// List is "a, b and c".
func List(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// Cut bounds a text to a number of bytes, at least three. A longer text loses its end, from a rune boundary
// on, and gets "…" instead.
func Cut(text string, maxBytes int) string {
	const mark = "…"
	if len(text) <= maxBytes {
		return text
	}
	end := max(0, maxBytes-len(mark))
	for back := 1; back < utf8.UTFMax && end > 0 && !utf8.RuneStart(text[end]); back++ {
		end--
	}
	return text[:end] + mark
}

// Size is a number of bytes with one decimal in the largest unit that fits: "5.0 MiB".
func Size(bytes uint64) string {
	const step = 1024
	if bytes < step {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes)/step, 0
	for value >= step && unit < 4 {
		value, unit = value/step, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTP"[unit])
}

// Seconds is d in seconds for JSON: whole microseconds, so that it has six decimals at most. Duration.Seconds
// adds two numbers, and 1.118 s come out as 1.1179999999999999.
func Seconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e6 }

// Duration is d rounded to seconds, or to milliseconds below a second, in the form of ShortDuration.
func Duration(d time.Duration) string {
	precision := time.Second
	if d < time.Second {
		precision = time.Millisecond
	}
	return ShortDuration(d.Round(precision))
}

// ShortDuration writes a duration as a user writes it in a setting, without units that are zero: "4m12s",
// "30m", "250ms", "0".
func ShortDuration(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
