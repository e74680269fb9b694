package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	cmdline "notifier/internal/cli"
	"notifier/internal/settings"
)

// longestPayload bounds a line of standard input, and a file: NATS' own upper bound of a payload.
const longestPayload = settings.LargestEvent

// errTooLong rejects a line or file above longestPayload.
var errTooLong = fmt.Errorf("is longer than %d bytes", longestPayload)

// payload is one payload to publish, or the error that ended the input: io.EOF after the last line.
type payload struct {
	text string
	line int // of standard input, or zero
	err  error
}

// failed adds to an error which line is at fault.
func (p payload) failed(err error) error {
	if p.line == 0 {
		return err
	}
	return fmt.Errorf("standard input: line %d: %w", p.line, err)
}

// payloads are the payloads to be published, in their order. An error is the last one.
func (r publishRequest) payloads(ctx context.Context, in io.Reader) iter.Seq[payload] {
	return func(yield func(payload) bool) {
		if !r.input {
			for range r.count {
				if !yield(payload{text: r.payload}) {
					return
				}
			}
			return
		}
		read := lines(in)
		for {
			next, err := interruptible(ctx, read)
			if err != nil {
				next.err = err
			}
			if errors.Is(next.err, io.EOF) || !yield(next) || next.err != nil {
				return
			}
		}
	}
}

// lines returns lines without their ends (of Unix or Windows), one with each call. Empty lines are skipped.
func lines(in io.Reader) func() payload {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, longestPayload)
	number := 0
	return func() payload {
		for scanner.Scan() {
			if number++; strings.TrimSpace(scanner.Text()) != "" {
				return payload{text: scanner.Text(), line: number}
			}
		}
		err := scanner.Err()
		switch {
		case err == nil:
			err = io.EOF
		case errors.Is(err, bufio.ErrTooLong):
			err = errTooLong
		}
		return payload{line: number + 1, err: err}
	}
}

// readFile reads the payload from its file, if it is in one.
func (r *publishRequest) readFile(ctx context.Context) error {
	if r.file == "" {
		return nil
	}
	read, err := interruptible(ctx, func() payload {
		text, err := readPayload(r.file)
		return payload{text: text, err: err}
	})
	if err != nil {
		return errors.New("interrupted")
	}
	if read.err != nil {
		text := fmt.Sprintf("%v; a PAYLOAD that begins with @ is written with @@", read.err)
		return &cmdline.UsageError{Text: text}
	}
	r.payload = read.text
	return nil
}

// readPayload reads a file of at most longestPayload bytes. The error names it.
func readPayload(name string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }() // nothing was written
	data, err := io.ReadAll(io.LimitReader(file, longestPayload+1))
	if err == nil && len(data) > longestPayload {
		err = fmt.Errorf("%s %w", name, errTooLong)
	}
	return string(data), err
}

// interruptible calls read and returns its result, or ctx's error if ctx is done first. A terminal read
// cannot be cancelled, so its goroutine is left behind.
func interruptible(ctx context.Context, read func() payload) (payload, error) {
	done := make(chan payload, 1)
	go func() { done <- read() }()
	select {
	case result := <-done:
		return result, nil
	case <-ctx.Done():
		return payload{}, ctx.Err()
	}
}
