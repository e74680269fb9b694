package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"notifier/test/kit"
)

// TestLinesArePayloads: a line is found however the input arrives, without its end, and with its number.
func TestLinesArePayloads(t *testing.T) {
	t.Parallel()
	const input = "\uFEFFone\r\n\n \t\n{\"text\":\n  two & three\nlast"
	want := []payload{
		{text: "\uFEFFone", line: 1}, {text: `{"text":`, line: 4}, {text: "  two & three", line: 5},
		{text: "last", line: 6},
	}
	for name, in := range map[string]io.Reader{
		"at once":      strings.NewReader(input),
		"byte by byte": iotest.OneByteReader(strings.NewReader(input)),
		"with its end": iotest.DataErrReader(strings.NewReader(input)),
	} {
		read := publishRequest{input: true}.payloads(t.Context(), in)
		i := 0
		for got := range read {
			if i >= len(want) || got != want[i] {
				t.Errorf("%s: payload %d is %+v, expected those of %+v", name, i, got, want)
			}
			i++
		}
		if i != len(want) {
			t.Errorf("%s: %d payloads, expected %d", name, i, len(want))
		}
	}
}

// endless is a line that never ends.
type endless struct{ read int }

func (e *endless) Read(buffer []byte) (int, error) {
	for i := range buffer {
		buffer[i] = 'x'
	}
	e.read += len(buffer)
	return len(buffer), nil
}

// TestEndlessPayload: an endless payload is rejected at the limit and never fully held in memory.
func TestEndlessPayload(t *testing.T) {
	t.Parallel()
	in := &endless{}
	input := io.MultiReader(strings.NewReader("one\n"), in)
	var last payload
	for last = range (publishRequest{input: true}).payloads(t.Context(), input) {
		if last.err == nil && last.text != "one" {
			t.Errorf("%.10q", last.text)
		}
	}
	const want = "standard input: line 2: is longer than 67108864 bytes"
	if !errors.Is(last.err, errTooLong) || last.failed(last.err).Error() != want {
		t.Errorf("%v, expected %q", last.failed(last.err), want)
	}
	if in.read > 2*longestPayload {
		t.Errorf("%d bytes were read", in.read)
	}
	name := filepath.Join(t.TempDir(), "large")
	file, err := os.Create(name)
	kit.Check(t, err)
	kit.Check(t, file.Truncate(longestPayload+1))
	kit.Check(t, file.Close())
	_, err = readPayload(name)
	if !errors.Is(err, errTooLong) || !strings.Contains(err.Error(), "large is longer than") {
		t.Errorf("%v", err)
	}
}
