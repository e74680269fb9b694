package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/urfave/cli/v3"

	"notifier/internal/app"
	cmdline "notifier/internal/cli"
	"notifier/internal/ratelimit"
	"notifier/internal/settings"
	"notifier/internal/status"
	"notifier/internal/term"
)

func whyCommand() *cli.Command {
	return &cli.Command{
		Name:      "why",
		Usage:     "show what became of one event and when, or what it waits for",
		ArgsUsage: "EVENT_ID",
		Description: `The id is the event_id in the log. An id counts within its category, and a CloudEvent's together with its source, so
there can be several events with it: all of them are shown, the latest first. Redis knows events that are in flight, with the time
of their admission, and those that were sent within DEDUPE_WINDOW. What was dropped or is dead is in the stream of outcomes in NATS
for 24 hours, in a storm only in parts ("notifier events -h"). One of the two is enough for an answer. An event that is held has what
the workers wait for, of the channel of its category; an unknown one may wait unread in the stream, and a dead one that was
replayed. The exit code is 0 even if the event is unknown; -json reports that in "state".

Examples:
   notifier why deploy-1234
   notifier why -category deploys deploy-1234`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "category", Usage: "only the event of this `CATEGORY`"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON, one object per event"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() != 1 {
				return cmdline.Usagef(cmd, "%s, expected one EVENT_ID", term.Count(cmd.NArg(), "argument"))
			}
			if cmd.Args().First() == "" {
				return cmdline.Usage(cmd, "EVENT_ID is empty, expected the event_id of a log line")
			}
			category, err := categoryFlag(cmd)
			if err != nil {
				return err
			}
			why := whyOutput{
				id: cmd.Args().First(), category: category, json: cmd.Bool("json"),
				out: cmd.Root().Writer, errOut: cmd.Root().ErrWriter,
			}
			return withStore(func(store app.Store) error { return why.run(ctx, store) })
		},
	}
}

// whyOutput is one run of the command.
type whyOutput struct {
	id       string
	category string // empty: any
	json     bool
	out      io.Writer
	errOut   io.Writer
}

// run asks Redis and NATS at the same time. One of them is enough for an answer; what is not known without
// the other is a note on standard error.
func (w whyOutput) run(ctx context.Context, store app.Store) error {
	var inNATS recorded
	var asking sync.WaitGroup
	asking.Go(func() { inNATS = askNATS(ctx, w.id, w.category) })
	asked, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	traces, err := store.Limiter.Trace(asked, w.id, w.category)
	var elsewhere []ratelimit.Trace
	if err == nil && len(traces) == 0 && w.category != "" {
		elsewhere, err = store.Limiter.Trace(asked, w.id, "")
	}
	asking.Wait()
	if wrong := (*settings.Problems)(nil); errors.As(inNATS.err, &wrong) {
		return inNATS.err
	}
	answers := newAnswers(w.id, traces, inNATS.outcomes)
	if err != nil {
		err = fmt.Errorf("REDIS_URL: %w", err)
		if len(answers) == 0 && inNATS.unread == nil {
			return err
		}
		w.note("what was admitted or sent is not known: " + err.Error())
	}
	if inNATS.err != nil {
		w.note("what was dropped or dead-lettered is not known: " + inNATS.err.Error())
	}
	if inNATS.unreadErr != nil {
		w.note("whether it waits unread in the stream is not known: " + inNATS.unreadErr.Error())
	}
	if len(answers) == 0 {
		unknown := whyAnswer{EventID: w.id, State: stateUnknown, Category: w.category}
		if inNATS.err != nil {
			unknown.NotAsked = inNATS.err.Error()
		}
		unknown.KnownIn = categoriesOf(newAnswers(w.id, elsewhere, inNATS.elsewhere))
		answers = []whyAnswer{unknown}
	}
	for i := range answers {
		a := &answers[i]
		if a.mayBeUnread() {
			a.Unread = inNATS.unread
		}
		if a.Recorded != nil {
			a.Recorded.LetterGone = slices.Contains(inNATS.gone, a.Recorded.LetterSeq)
		}
	}
	if err != nil {
		answers[0].waitForRedis(err)
	} else {
		w.addWaits(ctx, store.Status, answers)
	}
	if w.json {
		encoder := term.NewJSON(w.out)
		for _, a := range answers {
			if err := encoder.Encode(a); err != nil {
				return err
			}
		}
		return nil
	}
	for _, a := range answers {
		if _, err := fmt.Fprintln(w.out, term.Lines(a.text())); err != nil {
			return err
		}
	}
	return nil
}

// addWaits adds to events that are held, or may wait unread, what they wait for.
func (w whyOutput) addWaits(ctx context.Context, source status.Source, answers []whyAnswer) {
	if !slices.ContainsFunc(answers, whyAnswer.waits) {
		return
	}
	asked, cancel := context.WithTimeout(ctx, redisTimeout)
	refused := source.Stats.Refuses(asked)
	cancel()
	for i := range answers {
		a := &answers[i]
		if !a.waits() {
			continue
		}
		asked, cancel := context.WithTimeout(ctx, redisTimeout)
		holdup, err := source.Holdup(asked, a.Category, a.EventID)
		cancel()
		if err != nil {
			w.note("what it waits for is not known: REDIS_URL: " + err.Error())
		}
		a.Channel, a.WaitsFor = cmp.Or(a.Channel, holdup.Channel), holdup.Waits
		a.LastError, a.NextPost = holdup.Error, holdup.Next
		if refused != nil { // then no worker can report either
			a.waitForRedis(refused)
		}
	}
}

// note is for people, next to the answer.
func (w whyOutput) note(text string) {
	_, _ = fmt.Fprintln(w.errOut, "notifier: "+term.Printable(text))
}
