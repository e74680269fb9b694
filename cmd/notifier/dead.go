package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/consume/letters"
	"notifier/internal/outcome"
	"notifier/internal/redact"
	"notifier/internal/settings"
	"notifier/internal/term"
)

const (
	listedLetters = 50     // default of -n
	maxLetters    = 10_000 // bounds -n of "dead list", which holds as many in memory
	// maxFailures in a row end a replay: then the letters are not the cause.
	maxFailures = 10
)

func deadCommand() *cli.Command {
	return &cli.Command{
		Name:  "dead",
		Usage: "list the events that could never be sent, show one, replay or delete them",
		Description: `Workers keep such events as dead letters in the stream <NATS_STREAM>_DEAD, each
with the reason. Fix the cause before a replay: a replayed event is decided like any other, and can
become a dead letter again. Without a command it does the same as "notifier dead list".

Examples:
   notifier dead -reason unroutable
   notifier dead show 17`,
		Flags:  deadListFlags(),
		Action: runDeadList,
		Before: func(ctx context.Context, cmd *cli.Command) (context.Context, error) {
			// Commands do not see these flags: "dead -category errors delete -all" would delete all letters.
			if cmd.Args().Present() && len(cmd.LocalFlagNames()) > 0 {
				return ctx, cmdline.Usagef(cmd, "flags before %q, expected behind it", cmd.Args().First())
			}
			return ctx, nil
		},
		Commands: []*cli.Command{
			deadListCommand(),
			deadShowCommand(),
			deadReplayCommand(),
			deadDeleteCommand(),
		},
	}
}

func deadListCommand() *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "show dead letters, the newest last",
		Description: `SEQ names a letter for the other commands. No payload is shown.

Example:
   notifier dead list -reason unroutable -category deploys`,
		Flags:  deadListFlags(),
		Action: runDeadList,
	}
}

func deadListFlags() []cli.Flag {
	return deadFlags(&cli.IntFlag{Name: "n", Value: listedLetters, Usage: "show the newest `N`", Local: true})
}

func runDeadList(ctx context.Context, cmd *cli.Command) error {
	selection, err := parseSelection(cmd)
	if err != nil {
		return err
	}
	if selection.limit > maxLetters {
		return cmdline.Usagef(cmd, "-n %d, expected 1 to %d", selection.limit, maxLetters)
	}
	return listLetters(ctx, cmd, selection)
}

func deadShowCommand() *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show one dead letter with its payload",
		ArgsUsage: "SEQ",
		Description: `No other command shows a stored payload, which can be confidential. Control characters and
bytes that are not valid UTF-8 are escaped, such as \x1b. With -json the payload is exact: as "payload",
or as "payload_base64" if it is not valid UTF-8. Passwords in the URLs of headers are hidden.

Example:
   notifier dead show 17`,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "write a line of JSON"}},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() != 1 {
				return cmdline.Usagef(cmd, "%s, expected one SEQ", term.Count(cmd.NArg(), "argument"))
			}
			seq, err := parseSeq(cmd, cmd.Args().First())
			if err != nil {
				return err
			}
			s, err := settings.Load(settings.GroupNATS)
			if err != nil {
				return err
			}
			return withLetters(ctx, cmd, s.NATS, func(ctx context.Context, stream *letters.Stream) error {
				letter, err := stream.Get(ctx, seq)
				if err != nil {
					return fmt.Errorf("letter %d: %w", seq, err)
				}
				if cmd.Bool("json") {
					return writeLetterJSON(cmd.Root().Writer, letter)
				}
				return writeLetter(cmd.Root().Writer, stream.Name(), letter)
			})
		},
	}
}

func deadReplayCommand() *cli.Command {
	return &cli.Command{
		Name:      "replay",
		ArgsUsage: "[SEQ...]",
		Usage:     "publish dead letters again to where they came from, the oldest first",
		Description: `Select letters by SEQ, by -reason and -category, or by -all. Each event is
published as it was, to the subject it came from, and its letter is deleted once the stream has the
event. If a replay is cut off, run it again: events keep their ids and are not duplicated. Limits and
mutes apply: an event that they drop is gone, and so is its letter.

Shortened letters and messages that no worker wrote are left. The exit code is 1 if a letter could not be
replayed, or if one that SEQ names was left.

Examples:
   notifier dead replay 17 18
   notifier dead replay -reason slack_rejected -category deploys -n 1`,
		Flags: deadFlags(
			&cli.IntFlag{Name: "n", Usage: "replay the oldest `N`; by default all that are selected"},
			&cli.BoolFlag{Name: "all", Usage: "replay all letters"},
		),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			return work(ctx, cmd, "replayed", (*letters.Stream).Replay)
		},
	}
}

func deadDeleteCommand() *cli.Command {
	return &cli.Command{
		Name:      "delete",
		ArgsUsage: "[SEQ...]",
		Usage:     "delete dead letters for good, the oldest first",
		Description: `Select letters by SEQ, by -reason and -category, or by -all; "notifier dead list"
shows them. A deleted event is gone. Messages that no worker wrote are left. The exit code is 1 if a
letter could not be deleted.

Examples:
   notifier dead delete 17 18
   notifier dead delete -reason malformed -category errors`,
		Flags: deadFlags(
			&cli.IntFlag{Name: "n", Usage: "delete the oldest `N`; by default all that are selected"},
			&cli.BoolFlag{Name: "all", Usage: "delete all letters"},
		),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			return work(ctx, cmd, "deleted", (*letters.Stream).Delete)
		},
	}
}

func deadFlags(further ...cli.Flag) []cli.Flag {
	reasons := strings.Join(outcome.DeadReasons(), ", ")
	return append([]cli.Flag{
		&cli.StringFlag{Name: "reason", Usage: "only letters with this `REASON`: " + reasons, Local: true},
		&cli.StringFlag{Name: "category", Usage: "only letters of this `CATEGORY`, exactly", Local: true},
		&cli.BoolFlag{Name: "json", Usage: "write a line of JSON for each letter", Local: true},
	}, further...)
}

// deadSelection selects letters: those that are named by their sequences, or those that match.
type deadSelection struct {
	seqs             []uint64
	reason, category string // empty matches all
	limit            int    // 0 means no limit
}

func (s deadSelection) matches(r outcome.Record) bool {
	return (s.reason == "" || s.reason == r.Reason) && (s.category == "" || s.category == r.Category)
}

// parseSelection reads the flags and arguments that select letters.
func parseSelection(cmd *cli.Command) (deadSelection, error) {
	s := deadSelection{reason: cmd.String("reason"), limit: cmd.Int("n")}
	if cmd.IsSet("reason") && !slices.Contains(outcome.DeadReasons(), s.reason) {
		return s, cmdline.Usagef(cmd, "-reason %q, expected one of %s",
			s.reason, strings.Join(outcome.DeadReasons(), ", "))
	}
	if cmd.IsSet("n") && s.limit < 1 {
		return s, cmdline.Usagef(cmd, "-n %d, expected 1 or more", s.limit)
	}
	var err error
	if s.category, err = categoryFlag(cmd); err != nil {
		return s, err
	}
	for _, text := range cmd.Args().Slice() {
		seq, err := parseSeq(cmd, text)
		if err != nil {
			return s, err
		}
		if !slices.Contains(s.seqs, seq) {
			s.seqs = append(s.seqs, seq)
		}
	}
	return s, nil
}

// parseWork is parseSelection for a command that must not take all letters by default.
func parseWork(cmd *cli.Command) (deadSelection, error) {
	s, err := parseSelection(cmd)
	all, matching := cmd.Bool("all"), s.reason != "" || s.category != ""
	switch {
	case err != nil:
		return s, err
	case len(s.seqs) > 0 && (all || matching || s.limit > 0):
		return s, cmdline.Usage(cmd, "SEQ cannot be used with -reason, -category, -all or -n")
	case all && matching:
		return s, cmdline.Usage(cmd, "-all cannot be used with -reason or -category")
	case len(s.seqs) == 0 && !all && !matching:
		return s, cmdline.Usage(cmd, "no letters selected, expected SEQ, -reason, -category or -all")
	}
	return s, nil
}

func parseSeq(cmd *cli.Command, text string) (uint64, error) {
	seq, err := strconv.ParseUint(text, 10, 64)
	if err != nil || seq == 0 {
		return 0, cmdline.Usagef(cmd,
			"SEQ %q, expected the number of a letter such as 17, as \"notifier dead list\" shows it", text)
	}
	return seq, nil
}

// withLetters opens the dead-letter stream and calls do. If the server denies a request, the context of do
// ends.
func withLetters(
	ctx context.Context, cmd *cli.Command, s settings.NATS,
	do func(context.Context, *letters.Stream) error,
) error {
	err := connected(ctx, s, s.OperatorOptions(cmd.FullName()), func(ctx context.Context, c *nats.Conn) error {
		stream, err := letters.Open(ctx, c, s.Stream, s.Pattern)
		if err != nil {
			return err
		}
		return do(ctx, stream)
	})
	if errors.Is(err, nats.ErrPermissionViolation) {
		return fmt.Errorf("%w; docs/security.md has the permissions of an operator, "+
			"and under compose \"docker compose run --rm cli\" has them", err)
	}
	return err
}

// listLetters writes the newest letters of a selection, and a note. With -json the note is on standard error.
func listLetters(ctx context.Context, cmd *cli.Command, selection deadSelection) error {
	out, notes := cmd.Root().Writer, cmd.Root().Writer
	if cmd.Bool("json") {
		notes = cmd.Root().ErrWriter
	}
	s, err := settings.Load(settings.GroupNATS)
	if err != nil {
		return err
	}
	return withLetters(ctx, cmd, s.NATS, func(ctx context.Context, stream *letters.Stream) error {
		var newest []outcome.Record
		matching := 0
		err := stream.Each(ctx, func(r outcome.Record) error {
			if !selection.matches(r) {
				return nil
			}
			matching++
			newest = append(newest, r)
			if len(newest) == 2*selection.limit {
				newest = slices.Delete(newest, 0, selection.limit)
			}
			return nil
		})
		newest = newest[max(0, len(newest)-selection.limit):]
		switch {
		case err != nil:
			return err
		case cmd.Bool("json"):
			err = writeJSON(out, newest)
		case len(newest) > 0:
			err = writeLetters(out, newest)
		}
		note := term.Count(matching, "dead letter") + "."
		if older := matching - len(newest); older > 0 {
			note += fmt.Sprintf(" %d older ones are not shown: see -n.", older)
		}
		_, noteErr := fmt.Fprintln(notes, note)
		return errors.Join(err, noteErr)
	})
}

func writeLetters(out io.Writer, records []outcome.Record) error {
	heads := []any{"TIME", "CATEGORY", "REASON", "DETAIL", "EVENT ID", "SEQ"}
	sources := slices.ContainsFunc(records, func(r outcome.Record) bool { return r.Source != "" })
	if sources {
		heads = append(heads, "SOURCE")
	}
	table := term.NewTable(out)
	table.Row(heads...)
	for _, r := range records {
		row := []any{
			r.Time.Format(time.RFC3339), term.Cell(r.Category), term.Cell(r.Reason), term.Cell(r.Detail),
			term.Cell(r.EventID), r.LetterSeq,
		}
		if sources {
			row = append(row, term.Cell(r.Source))
		}
		table.Row(row...)
	}
	return table.Flush()
}

// writeLetter shows a letter to people.
func writeLetter(out io.Writer, stream string, letter *letters.Letter) error {
	r := letter.Record
	table := term.NewTable(out)
	row := func(head, value string) {
		if value != "" {
			table.Row(head, value)
		}
	}
	row("LETTER", fmt.Sprintf("%d of stream %s", r.LetterSeq, stream))
	row("TIME", r.Time.Format(time.RFC3339))
	row("CATEGORY", r.Category)
	row("REASON", r.Reason)
	row("DETAIL", r.Detail)
	row("EVENT ID", r.EventID)
	row("SOURCE", r.Source)
	row("SUBJECT", r.Subject)
	headers := shownHeaders(letter)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		for _, value := range headers[name] {
			row("HEADER", name+": "+value)
		}
	}
	size := term.Count(len(letter.Payload), "byte")
	if whole, shortened := letter.Shortened(); shortened {
		size = fmt.Sprintf("the first %s of %d, the letter has no more", size, whole)
	}
	row("PAYLOAD", size)
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%s\n", strings.TrimSuffix(term.Bytes(letter.Payload), "\n"))
	return err
}

// userinfo is the user and password of a URL within a text. A password can have any characters, so it ends at
// the last "@", which is percent-encoded where only the slashes are not, as Python's quote does by default.
var userinfo = regexp.MustCompile(`//[^\s"']*(@|%(?:25)*40)`)

// shownHeaders returns the publisher's headers without the passwords in URLs, such as a CloudEvent's source.
func shownHeaders(letter *letters.Letter) map[string][]string {
	headers := letter.Headers()
	for name, values := range headers {
		shown := make([]string, len(values))
		for i, value := range values {
			shown[i] = userinfo.ReplaceAllString(redact.Encoded(value), "//?${1}")
		}
		headers[name] = shown
	}
	return headers
}

// shownLetter is a letter in the JSON of "dead show".
type shownLetter struct {
	outcome.Record
	Shortened *int                `json:"shortened,omitempty"` // length of the whole payload
	Headers   map[string][]string `json:"headers,omitempty"`
	Payload   *string             `json:"payload,omitempty"`
	Base64    []byte              `json:"payload_base64,omitempty"` // instead, if it is not valid UTF-8
}

func writeLetterJSON(out io.Writer, letter *letters.Letter) error {
	line := shownLetter{Record: letter.Record, Headers: shownHeaders(letter)}
	if whole, shortened := letter.Shortened(); shortened {
		line.Shortened = &whole
	}
	if text := string(letter.Payload); utf8.ValidString(text) {
		line.Payload = &text
	} else {
		line.Base64 = letter.Payload
	}
	return term.NewJSON(out).Encode(line)
}

// work replays or deletes the letters that the command line selects, the oldest first, and writes the counts.
// An interrupt ends it between two letters, so it never leaves a letter with a published event.
func work(interrupt context.Context, cmd *cli.Command, verb string, do letterAction) error {
	selection, err := parseWork(cmd)
	if err != nil {
		return err
	}
	loaded, err := settings.Load(settings.GroupNATS, "DEAD_LETTER_SUBJECT")
	if err != nil {
		return err
	}
	ctx := context.WithoutCancel(interrupt)
	return withLetters(ctx, cmd, loaded.NATS, func(ctx context.Context, stream *letters.Stream) error {
		seqs := slices.Sorted(slices.Values(selection.seqs))
		if len(seqs) == 0 {
			// Each ends before letters that arrive later, so no event is replayed twice.
			err := stream.Each(ctx, func(r outcome.Record) error {
				if selection.matches(r) {
					seqs = append(seqs, r.LetterSeq)
				}
				return interrupt.Err()
			})
			if err != nil {
				return err
			}
		}
		w := deadWork{
			cmd: cmd, stream: stream, subject: loaded.DeadLetter,
			verb: verb, do: do, limit: selection.limit,
		}
		err := w.all(ctx, interrupt, seqs)
		err = errors.Join(err, w.summarize(len(seqs)))
		notDone := w.failed
		if len(selection.seqs) > 0 {
			notDone += w.left // the operator named it
		}
		if err == nil && notDone > 0 {
			return fmt.Errorf("%s could not be %s", term.Count(notDone, "letter"), verb)
		}
		return err
	})
}

// letterAction replays or deletes a letter that workers keep below subject.
type letterAction func(s *letters.Stream, ctx context.Context, subject string, letter *letters.Letter) error

// deadWork is one run of a command that replays or deletes letters.
type deadWork struct {
	cmd     *cli.Command
	stream  *letters.Stream
	subject string
	verb    string // "replayed" or "deleted"
	do      letterAction
	limit   int // of letters that are done; 0 means no limit

	done, left, failed int
}

// all tries each letter. It returns an error if the others cannot succeed either.
func (w *deadWork) all(ctx, interrupt context.Context, seqs []uint64) error {
	failures := 0 // in a row
	for _, seq := range seqs {
		switch {
		case interrupt.Err() != nil:
			return interrupt.Err()
		case w.limit > 0 && w.done == w.limit:
			return nil
		case failures == maxFailures:
			return fmt.Errorf("%d letters in a row could not be %s, the others were not tried", failures, w.verb)
		}
		result, err := w.one(ctx, seq)
		failures++
		switch result.Result {
		case w.verb:
			w.done++
			failures = 0
		case "left":
			w.left++
			failures = 0
		case "failed":
			w.failed++
		}
		if failure := w.report(result); err == nil {
			err = failure
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// deadResult is a line of -json about a letter.
type deadResult struct {
	*outcome.Record        // nil if the letter could not be read
	LetterSeq       uint64 `json:"letter_seq"`
	Result          string `json:"result"` // "replayed", "deleted", "left" or "failed"
	Why             string `json:"why,omitempty"`
}

// one tries one letter. It returns an error only if that concerns all letters.
func (w *deadWork) one(ctx context.Context, seq uint64) (deadResult, error) {
	result := deadResult{LetterSeq: seq, Result: w.verb}
	letter, err := w.stream.Get(ctx, seq)
	if err == nil {
		result.Record = &letter.Record
		err = w.do(w.stream, ctx, w.subject, letter)
	}
	alone := (*letters.LetterError)(nil)
	switch {
	case err == nil:
		return result, nil
	case !errors.As(err, &alone):
		result.Result = "failed" // the command ends with the error
		return result, fmt.Errorf("letter %d: %w", seq, err)
	case alone.Permanent:
		result.Result, result.Why = "left", alone.Why
	default:
		result.Result, result.Why = "failed", alone.Why
	}
	return result, nil
}

// report writes a line about one letter: as JSON, or only if the letter stays.
func (w *deadWork) report(r deadResult) error {
	if w.cmd.Bool("json") {
		return term.NewJSON(w.cmd.Root().Writer).Encode(r)
	}
	if r.Why == "" {
		return nil
	}
	why := term.Printable(r.Why)
	_, err := fmt.Fprintf(w.cmd.Root().ErrWriter, "letter %d %s: %s\n", r.LetterSeq, r.Result, why)
	return err
}

// summarize counts the letters, on standard error with -json.
func (w *deadWork) summarize(selected int) error {
	out := w.cmd.Root().Writer
	if w.cmd.Bool("json") {
		out = w.cmd.Root().ErrWriter
	}
	text := fmt.Sprintf("%d %s", w.done, w.verb)
	for _, count := range []struct {
		n    int
		what string
	}{{w.left, "left"}, {w.failed, "failed"}, {selected - w.done - w.left - w.failed, "not tried"}} {
		if count.n > 0 {
			text += fmt.Sprintf(", %d %s", count.n, count.what)
		}
	}
	_, err := fmt.Fprintln(out, text+".")
	return err
}
