package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/consume/letters"
	"notifier/internal/settings"
	"notifier/internal/term"
)

func deadShowCommand() *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show one dead letter with its payload",
		ArgsUsage: "SEQ",
		Description: `SEQ is the number of the letter, as "notifier dead list" shows it. This is the only command that shows a payload, which
can be confidential.

Characters that a terminal would obey and bytes that are not valid UTF-8 are shown escaped, such as \x1b. With -json the
payload is exact: as "payload", or as "payload_base64" if it is not valid UTF-8. Passwords within URLs are hidden in headers;
the payload is shown as it is.

Examples:
   notifier dead show 17
   notifier dead show -json 17`,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "write the letter as a line of JSON"}},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() != 1 {
				return cmdline.Usagef(cmd, "%s, expected one SEQ", term.Count(cmd.NArg(), "argument"))
			}
			seq, err := parseSeq(cmd.Args().First())
			if err != nil {
				return cmdline.Usage(cmd, err.Error())
			}
			show := deadShow{seq: seq, json: cmd.Bool("json"), out: cmd.Root().Writer}
			return withDeadLetters(ctx, "notifier dead show", show.run)
		},
	}
}

// deadShow is one run of the command.
type deadShow struct {
	seq  uint64
	json bool
	out  io.Writer
}

func (s deadShow) run(ctx context.Context, _ settings.NATS, stream *letters.Stream) error {
	filter := deadFilter{seqs: []uint64{s.seq}}
	if stream == nil {
		return filter.noStream()
	}
	return filter.each(ctx, stream, func(letter *letters.Letter) error {
		if s.json {
			return term.NewJSON(s.out).Encode(newDeadShowLine(letter))
		}
		return s.write(stream.Name(), letter)
	})
}

// write shows the letter to people.
func (s deadShow) write(stream string, letter *letters.Letter) error {
	lines := []string{fmt.Sprintf("letter %d of stream %s", letter.Seq, stream)}
	add := func(name, value string) {
		if value != "" {
			lines = append(lines, fmt.Sprintf("  %-9s %s", name, term.Printable(value)))
		}
	}
	add("when", letter.Time.Format(time.RFC3339Nano))
	add("category", letter.Category)
	add("reason", letter.Reason)
	add("detail", letter.Detail)
	add("event id", letter.EventID)
	add("subject", letter.Subject)
	if letter.StreamSeq > 0 {
		add("event", fmt.Sprintf("%d in its stream", letter.StreamSeq))
	}
	headers := shownHeaders(letter)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		for _, value := range headers[name] {
			add("header", name+": "+value)
		}
	}
	lines = append(lines, "  payload   "+payloadNote(letter), "")
	payload := term.Bytes(letter.Payload())
	if payload != "" && !strings.HasSuffix(payload, "\n") {
		payload += "\n"
	}
	_, err := io.WriteString(s.out, strings.Join(lines, "\n")+"\n"+payload)
	return err
}

// payloadNote describes the payload: its length, and whether it is shortened or not valid UTF-8.
func payloadNote(letter *letters.Letter) string {
	note := term.Count(letter.Bytes, "byte")
	if letter.Shortened >= 0 {
		note = fmt.Sprintf("the first %s of %d, the letter has no more", note, letter.Shortened)
	}
	if !utf8.Valid(letter.Payload()) {
		note += "; not valid UTF-8, -json has it as base64"
	}
	return note
}

// userinfo is the user and password of a URL within a text, percent-encoded or not. A password can have any
// characters, so it ends at the last "@".
var userinfo = regexp.MustCompile(`(?i)(:(?://|%2f%2f))[^\s"']*(@|%40)`)

// shownHeaders are the publisher's headers without the passwords in URLs: a CloudEvent has its source there.
func shownHeaders(letter *letters.Letter) map[string][]string {
	headers := letter.Headers()
	for name, values := range headers {
		shown := make([]string, len(values))
		for i, value := range values {
			shown[i] = userinfo.ReplaceAllString(value, "${1}?${2}")
		}
		headers[name] = shown
	}
	return headers
}

// deadShowLine is the line of -json: the letter as in the list, with its headers and payload.
type deadShowLine struct {
	deadLetterLine
	Headers map[string][]string `json:"headers,omitempty"`
	Payload *string             `json:"payload,omitempty"`
	Base64  *string             `json:"payload_base64,omitempty"` // in its place where it is not valid UTF-8
}

func newDeadShowLine(letter *letters.Letter) deadShowLine {
	line := deadShowLine{deadLetterLine: newDeadLetterLine(letter.Info), Headers: shownHeaders(letter)}
	text := string(letter.Payload())
	if utf8.ValidString(text) {
		line.Payload = &text
	} else {
		text = base64.StdEncoding.EncodeToString(letter.Payload())
		line.Base64 = &text
	}
	return line
}
