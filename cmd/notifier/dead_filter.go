package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/consume/letters"
	"notifier/internal/outcome"
	"notifier/internal/term"
)

// deadFlags select letters.
func deadFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name:  "reason",
			Usage: "only letters with this `REASON`: " + strings.Join(outcome.DeadReasons(), ", "),
		},
		&cli.StringFlag{Name: "category", Usage: "only letters of this `CATEGORY`, exactly"},
		&cli.StringSliceFlag{Name: "seq", Hidden: true}, // of v0.1.0
	}
}

// deadFilter selects letters. The zero value selects all.
type deadFilter struct {
	seqs             []uint64 // sorted, each once; with these nothing else is set
	reason, category string
}

// isSet reports whether it selects letters at all.
func (f deadFilter) isSet() bool { return f.seqs != nil || f.reason != "" || f.category != "" }

// parseSeqs reads the letters that are named, and the flags that the commands share.
func parseSeqs(cmd *cli.Command) (deadFilter, error) {
	filter, err := parseDead(cmd)
	if err != nil || !cmd.Args().Present() {
		return filter, err
	}
	if filter.isSet() || cmd.IsSet("n") {
		return filter, cmdline.Usage(cmd, "SEQ names letters: it cannot be used with -reason, -category or -n")
	}
	for _, text := range cmd.Args().Slice() {
		seq, err := parseSeq(text)
		if err != nil {
			return filter, cmdline.Usage(cmd, "SEQ "+err.Error())
		}
		filter.seqs = append(filter.seqs, seq)
	}
	slices.Sort(filter.seqs)
	filter.seqs = slices.Compact(filter.seqs)
	return filter, nil
}

// parseDead reads the flags that the commands share.
func parseDead(cmd *cli.Command) (deadFilter, error) {
	filter := deadFilter{reason: cmd.String("reason")}
	if cmd.IsSet("seq") { // also an empty one: without it all letters would match
		now, seqs := cmd.Name, strings.Join(cmd.StringSlice("seq"), " ")
		if now == "list" {
			now = "show"
		}
		return filter, cmdline.Usagef(cmd, `"dead %s -seq" is now "dead %s %s"`, cmd.Name, now, seqs)
	}
	if cmd.IsSet("reason") && !slices.Contains(outcome.DeadReasons(), filter.reason) {
		return filter, cmdline.Usagef(cmd, "-reason %q, expected one of %s",
			filter.reason, strings.Join(outcome.DeadReasons(), ", "))
	}
	var err error
	if filter.category, err = categoryFlag(cmd); err != nil {
		return filter, err
	}
	if n := cmd.Int("n"); cmd.IsSet("n") && n < 1 {
		return filter, cmdline.Usagef(cmd, "-n %d, expected 1 or more", n)
	}
	return filter, nil
}

// parseSeq reads the sequence of a letter.
func parseSeq(text string) (uint64, error) {
	seq, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	if err != nil || seq == 0 {
		return 0, fmt.Errorf(
			"%q, expected the number of a letter such as 17, as \"notifier dead list\" shows it",
			text,
		)
	}
	return seq, nil
}

func (f deadFilter) matches(letter *letters.Letter) bool {
	return (f.reason == "" || f.reason == letter.Reason) && (f.category == "" || f.category == letter.Category)
}

// noStream returns the error for a missing stream. It returns nil unless letters are named by their numbers.
func (f deadFilter) noStream() error {
	if f.seqs == nil {
		return nil
	}
	return fmt.Errorf("%s: the stream for dead letters does not exist yet", missing(f.seqs))
}

// each calls do with the letters that match, oldest first. If letters are named by their numbers,
// numbers that no letter has are an error in the end, when the other letters are done.
func (f deadFilter) each(ctx context.Context, stream *letters.Stream, do func(*letters.Letter) error) error {
	if f.seqs == nil {
		return stream.Each(ctx, do)
	}
	var absent []uint64
	for _, seq := range f.seqs {
		letter, err := stream.Get(ctx, seq)
		if errors.Is(err, letters.ErrNoLetter) {
			absent = append(absent, seq)
			continue
		}
		if err == nil {
			err = do(letter)
		}
		if err != nil {
			return err
		}
	}
	if len(absent) > 0 {
		return fmt.Errorf(
			"%s in stream %s: replayed, deleted and displaced letters are gone; \"notifier dead list\" shows those that exist",
			missing(absent),
			stream.Name(),
		)
	}
	return nil
}

// missing says that there are no such letters.
func missing(seqs []uint64) string {
	names := make([]string, len(seqs))
	for i, seq := range seqs {
		names[i] = strconv.FormatUint(seq, 10)
	}
	if len(names) == 1 {
		return "letter " + names[0] + " does not exist"
	}
	return "letters " + term.List(names) + " do not exist"
}
