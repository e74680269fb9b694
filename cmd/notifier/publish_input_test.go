package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"notifier/internal/testkit"
)

// texts reads all texts of an input.
func textsOf(next func() text) (texts []text, end error) {
	for {
		t := next()
		if t.err != nil {
			return texts, t.err
		}
		texts = append(texts, t)
	}
}

// TestValuesOfAnyForm: values are found wherever lines end and however the input arrives, each with the line that it begins in.
func TestValuesOfAnyForm(t *testing.T) {
	t.Parallel()
	const input = "\uFEFF {\"a\":1}{\"b\":\n\n2}\r\n\r\n  [3]\n\"four\" 5\n"
	want := []text{
		{text: `{"a":1}`, where: "value 1 in line 1"},
		{text: "{\"b\":\n\n2}", where: "value 2 in line 1"},
		{text: "[3]", where: "value 3 in line 5"},
		{text: `"four"`, where: "value 4 in line 6"},
		{text: "5", where: "value 5 in line 6"},
	}
	for name, in := range map[string]io.Reader{
		"at once": strings.NewReader(input), "byte by byte": iotest.OneByteReader(strings.NewReader(input)),
		"half by half": iotest.HalfReader(strings.NewReader(input)), "with its end": iotest.DataErrReader(strings.NewReader(input)),
	} {
		got, end := textsOf(values(in))
		if !errors.Is(end, io.EOF) || len(got) != len(want) {
			t.Fatalf("%s: %+v, %v", name, got, end)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %+v, expected %+v", name, got[i], want[i])
			}
		}
	}
}

// TestAValueComesAtOnce: who writes one object after the other into a pipe waits for none of them to be published.
func TestAValueComesAtOnce(t *testing.T) {
	t.Parallel()
	reader, writer := io.Pipe()
	texts := readTexts(t.Context(), reader, true)
	for range 3 {
		_, err := io.WriteString(writer, `{"text":"disk full"}`)
		testkit.Check(t, err)
		select {
		case got := <-texts:
			if got.text != `{"text":"disk full"}` {
				t.Errorf("%+v", got)
			}
		case <-time.After(testkit.Patience):
			t.Fatal("it waits for more")
		}
	}
	testkit.Check(t, writer.Close())
	if got := <-texts; !errors.Is(got.err, io.EOF) {
		t.Errorf("%+v, expected the end", got)
	}
}

// endless never ends a line or a value.
type endless struct{ read int }

func (e *endless) Read(buffer []byte) (int, error) {
	for i := range buffer {
		buffer[i] = '"'
		if e.read+i > 0 {
			buffer[i] = 'x'
		}
	}
	e.read += len(buffer)
	return len(buffer), nil
}

// TestAnEndlessText: what never ends is given up at the bound, and not kept whole in memory.
func TestAnEndlessText(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]func(io.Reader) func() text{"lines": lines, "values": values} {
		in := &endless{}
		_, err := textsOf(form(in))
		if !errors.Is(err, errTooLong) || in.read > 2*longestPayload {
			t.Errorf("%s: %v after %d bytes", name, err, in.read)
		}
	}
	if _, err := readAll(&endless{}, "FILE"); !errors.Is(err, errTooLong) || err.Error() != "FILE is longer than 67108864 bytes" {
		t.Errorf("%v", err)
	}
}
