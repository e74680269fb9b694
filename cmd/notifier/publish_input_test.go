package main

import (
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
		{data: []byte("\uFEFFone"), line: 1}, {data: []byte(`{"text":`), line: 4},
		{data: []byte("  two & three"), line: 5}, {data: []byte("last"), line: 6},
	}
	for name, in := range map[string]io.Reader{
		"at once":      strings.NewReader(input),
		"byte by byte": iotest.OneByteReader(strings.NewReader(input)),
		"with its end": iotest.DataErrReader(strings.NewReader(input)),
	} {
		var got []payload
		for next := range readLines(in) {
			got = append(got, next)
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d payloads, expected %d", name, len(got), len(want))
			continue
		}
		for i := range want {
			same := string(got[i].data) == string(want[i].data) && got[i].line == want[i].line
			if !same || got[i].err != nil {
				t.Errorf("%s: payload %d is %+v, expected %+v", name, i, got[i], want[i])
			}
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

// TestEndlessPayload: a line and a file are rejected at the limit and never fully held in memory. An input
// that cannot be read is an error of its line.
func TestEndlessPayload(t *testing.T) {
	t.Parallel()
	in := &endless{}
	var last payload
	for last = range readLines(io.MultiReader(strings.NewReader("one\n"), in)) {
		if last.err == nil && string(last.data) != "one" {
			t.Errorf("%.10q", last.data)
		}
	}
	const want = "line 2: longer than 67108864 bytes"
	if last.err == nil || last.at(last.err).Error() != want {
		t.Errorf("%v, expected %q", last.err, want)
	}
	if in.read > 2*maxPayload {
		t.Errorf("%d bytes were read", in.read)
	}
	for last = range readLines(iotest.ErrReader(os.ErrClosed)) {
		if last.err == nil || last.at(last.err).Error() != "line 1: file already closed" {
			t.Errorf("%v, expected the reader's error", last.err)
		}
	}
	name := filepath.Join(t.TempDir(), "large")
	file, err := os.Create(name)
	kit.Check(t, err)
	kit.Check(t, file.Truncate(maxPayload+1))
	kit.Check(t, file.Close())
	_, err = readPayload("@" + name)
	if err == nil || !strings.Contains(err.Error(), "large has more than 67108864 bytes, ") {
		t.Errorf("%v, expected that it is too large", err)
	}
}
