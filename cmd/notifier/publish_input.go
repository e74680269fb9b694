package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	cmdline "notifier/internal/cli"
)

// text is one text of standard input, or the reason why there is none: io.EOF after the last.
type text struct {
	text  string
	where string // "line 3", or "value 2 in line 3"
	err   error
}

// errTooLong is why a line or a value is not read to its end.
var errTooLong = fmt.Errorf("is longer than %d bytes", longestPayload)

// readTexts reads in a goroutine of its own, because a read from a terminal cannot be interrupted. The goroutine ends with the
// input, or after the next text once ctx has ended.
func readTexts(ctx context.Context, in io.Reader, isJSON bool) <-chan text {
	texts := make(chan text)
	go func() {
		next := lines(in)
		if isJSON {
			next = values(in)
		}
		for {
			t := next()
			select {
			case texts <- t:
			case <-ctx.Done():
				return
			}
			if t.err != nil {
				return
			}
		}
	}()
	return texts
}

// lines returns lines without their ends (of Unix or Windows), one with each call. Lines with nothing to read are left out.
func lines(in io.Reader) func() text {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, longestPayload)
	number := 0
	return func() text {
		for scanner.Scan() {
			if number++; strings.TrimSpace(scanner.Text()) != "" {
				return text{text: scanner.Text(), where: fmt.Sprintf("line %d", number)}
			}
		}
		err := scanner.Err()
		switch {
		case err == nil:
			err = io.EOF
		case errors.Is(err, bufio.ErrTooLong):
			err = errTooLong
		}
		return text{where: fmt.Sprintf("line %d", number+1), err: err}
	}
}

// values returns JSON values, one with each call: each may be on many lines, and several on one. It begins to read at once.
func values(in io.Reader) func() text {
	source := &counted{in: skipMark(in)}
	decoder := json.NewDecoder(source)
	number := 0
	return func() text {
		number++
		source.left = longestPayload
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if err == nil {
			return text{text: string(raw), where: fmt.Sprintf("value %d in line %d", number, source.line(decoder.InputOffset()-int64(len(raw))))}
		}
		end := text{where: fmt.Sprintf("value %d after line %d", number, source.line(decoder.InputOffset())), err: err}
		broken := (*json.SyntaxError)(nil)
		switch {
		case errors.As(err, &broken):
			end.where = fmt.Sprintf("value %d", number)
			end.err = &cmdline.UsageError{Text: fmt.Sprintf("broken JSON in line %d", source.line(broken.Offset-1))}
		case errors.Is(err, io.ErrUnexpectedEOF):
			end.where = fmt.Sprintf("value %d", number)
			end.err = &cmdline.UsageError{Text: fmt.Sprintf("broken JSON: the input ends in line %d before its value does", source.line(source.read))}
		}
		return end
	}
}

// skipMark leaves out the byte-order mark that some editors and shells put in front.
func skipMark(in io.Reader) io.Reader {
	const mark = "\uFEFF"
	buffered := bufio.NewReader(in)
	if first, err := buffered.Peek(1); err == nil && first[0] == mark[0] {
		if whole, err := buffered.Peek(len(mark)); err == nil && string(whole) == mark {
			_, _ = buffered.Discard(len(mark)) // they are there
		}
	}
	return buffered
}

// counted is a reader that knows in which line an offset is, and ends a value that is too long.
type counted struct {
	in     io.Reader
	left   int     // bytes that may still be read
	read   int64   // bytes that were read
	ends   []int64 // offsets of line ends that line has not passed yet
	passed int     // line ends before these
}

func (c *counted) Read(buffer []byte) (int, error) {
	if c.left <= 0 {
		return 0, errTooLong
	}
	n, err := c.in.Read(buffer[:min(len(buffer), c.left)])
	for at, rest := 0, buffer[:n]; ; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			break
		}
		c.ends = append(c.ends, c.read+int64(at+i))
		at, rest = at+i+1, rest[i+1:]
	}
	c.left -= n
	c.read += int64(n)
	return n, err
}

// line is the number of the line that has an offset, which is not before that of the last call.
func (c *counted) line(offset int64) int {
	for len(c.ends) > 0 && c.ends[0] < offset {
		c.ends = c.ends[1:]
		c.passed++
	}
	return c.passed + 1
}

// readAll reads at most longestPayload bytes. The error names what is read.
func readAll(in io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(in, longestPayload+1))
	if err == nil && len(data) > longestPayload {
		err = fmt.Errorf("%s %w", name, errTooLong)
	}
	return data, err
}
