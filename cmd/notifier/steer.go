package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"notifier/internal/app"
	cmdline "notifier/internal/cli"
	"notifier/internal/settings"
	"notifier/internal/status"
	"notifier/internal/status/config"
	"notifier/internal/status/report"
	"notifier/internal/steering"
	"notifier/internal/term"
)

// This file holds the common parts of "mute" and "limit".

const (
	// followTimeout bounds the wait for replicas to apply a change, usually under two seconds.
	followTimeout = 3 * time.Second
	followPoll    = 200 * time.Millisecond
)

// steer is one run of a command.
type steer struct {
	store app.Store
	json  bool
	out   io.Writer
}

// withSteering opens the Redis of the settings. Its errors name the variable.
func withSteering(ctx context.Context, cmd *cli.Command, do func(ctx context.Context, s steer) error) error {
	return withStore(func(store app.Store) error {
		ctx, cancel := context.WithTimeout(ctx, redisTimeout+followTimeout)
		defer cancel()
		return do(ctx, steer{store: store, json: cmd.Bool("json"), out: cmd.Root().Writer})
	})
}

// orderFlags are of the commands that give an order, listFlag of those that list.
func orderFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "for", Usage: "for this `DURATION`, 1s to 744h (31 days)"},
		&cli.StringFlag{Name: "reason", Usage: "`TEXT` that logs, status and lists show with it"},
		&cli.StringFlag{
			Name: "by", Sources: cli.EnvVars("USER"), Usage: "`NAME` that they show as who did it, by default USER",
		},
	}
}

func listFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "write each as a line of JSON instead of the table", Local: true}
}

// parseLength reads for how long something is to last.
func parseLength(cmd *cli.Command) (time.Duration, error) {
	if !cmd.IsSet("for") {
		return 0, cmdline.Usage(cmd, "missing -for DURATION, expected for how long, such as -for 2h")
	}
	text := cmd.String("for")
	length, err := time.ParseDuration(text)
	if err != nil || length < steering.Shortest || length > steering.Longest || length%time.Microsecond != 0 {
		return 0, cmdline.Usagef(cmd, "-for %q, expected 1s to 744h (31 days) in h, m, s or ms, such as 30m", text)
	}
	return length, nil
}

// who gives an order. The name of the host says nothing in a container; the user is the last resort, because
// there it is everybody's.
func who(cmd *cli.Command) string {
	if by := cmd.String("by"); by != "" {
		return by
	}
	if current, err := user.Current(); err == nil && current.Username != "" {
		return current.Username
	}
	return "uid " + strconv.Itoa(os.Getuid())
}

// redisError names the setting and, if Redis refuses writes, the reason instead of the reply of a script.
func redisError(err error) error {
	if text := status.RedisRefusal(err.Error()); text != "" {
		return fmt.Errorf("REDIS_URL: %s; nothing was changed, \"notifier check\" says what to do", text)
	}
	return fmt.Errorf("REDIS_URL: %w", err)
}

// running returns the settings of the running replicas or, if none runs, of this process.
func (s steer) running(ctx context.Context) ([]config.Deciding, error) {
	loaded, err := settings.Load("NATS_SUBJECT")
	if err != nil {
		return nil, err
	}
	source := s.store.Status
	source.Own.Subject = loaded.NATS.Pattern
	all, err := source.Running(ctx)
	if err != nil {
		return nil, redisError(err)
	}
	return all, nil
}

// checkOccurs rejects a category or pattern that no event has under any of the settings.
func checkOccurs(cmd *cli.Command, all []config.Deciding, categories string) error {
	var first error
	for _, replica := range all {
		err := repeatsPrefix(replica.Subject, categories)
		if err == nil && !replica.Subject.Gives(categories) {
			err = cmdline.Usagef(cmd, "%s never matches, because the categories of NATS_SUBJECT %q are one token; "+
				"expected a name or pattern without dots", categories, replica.Subject)
		}
		if err == nil {
			return nil
		}
		first = cmp.Or(first, err)
	}
	return first
}

// set stores an order and reports who follows it.
func (s steer) set(ctx context.Context, order steering.Order, length time.Duration, notes ...string) error {
	before, err := s.store.Steering.Read(ctx)
	if err != nil {
		return redisError(err)
	}
	order, version, err := s.store.Steering.Set(ctx, order, length)
	if err != nil {
		return redisError(err)
	}
	lines := []string{fmt.Sprintf("%s is in force until %s, for %s.",
		order.Describe(), order.Until.Format(time.RFC3339), term.ShortDuration(length))}
	for _, replaced := range before.InForce(before.Now, order.Kind) {
		if replaced.Target == order.Target {
			lines = append(lines, fmt.Sprintf("It replaces %s until %s by %s, which does not come back.",
				replaced.Describe(), replaced.Until.Format(time.RFC3339), replaced.By))
		}
	}
	return s.report(ctx, version, append(lines, notes...))
}

// end ends an order before its time.
func (s steer) end(ctx context.Context, kind steering.Kind, target, nothing string) error {
	found, version, err := s.store.Steering.Clear(ctx, kind, target)
	if err != nil {
		return redisError(err)
	}
	if !found {
		return s.unknown(ctx, kind, nothing)
	}
	what := "mute of " + target
	if kind == steering.Limit {
		what = "temporary limit of " + target
	}
	return s.report(ctx, version, []string{what + " is over."})
}

// unknown returns the error for an order that does not exist. It names the existing ones.
func (s steer) unknown(ctx context.Context, kind steering.Kind, nothing string) error {
	state, err := s.store.Steering.Read(ctx)
	if err != nil {
		return redisError(err)
	}
	var targets []string
	for _, order := range state.InForce(state.Now, kind) {
		targets = append(targets, order.Target)
	}
	if len(targets) == 0 {
		return fmt.Errorf("%s; nothing is in force", nothing)
	}
	const most = 10
	more := ""
	if len(targets) > most {
		more = fmt.Sprintf(" and %d more", len(targets)-most)
		targets = targets[:most]
	}
	return fmt.Errorf("%s; in force: %s%s", nothing, strings.Join(targets, ", "), more)
}

// report writes the lines, and waits until all replicas follow.
func (s steer) report(ctx context.Context, version int64, lines []string) error {
	if _, err := fmt.Fprintln(s.out, term.Lines(strings.Join(lines, "\n"))); err != nil {
		return err
	}
	deadline := time.Now().Add(followTimeout)
	for {
		replicas, err := s.store.Reports.Replicas(ctx)
		if err != nil {
			return fmt.Errorf("stored, but which replicas follow is unknown: REDIS_URL: %w", err)
		}
		text, done := followers(replicas, version)
		if done || time.Now().After(deadline) || ctx.Err() != nil {
			_, err := fmt.Fprintln(s.out, term.Printable(text))
			return err
		}
		select {
		case <-time.After(followPoll):
		case <-ctx.Done():
		}
	}
}

// followers counts the running replicas that have applied a version. A silent replica has died, or applies the
// version once it resumes.
func followers(replicas []report.Replica, version int64) (text string, all bool) {
	running := 0
	var behind []string
	for _, replica := range replicas {
		if replica.Silent {
			continue
		}
		running++
		if replica.Snapshot.Steering < version {
			behind = append(behind, replica.Snapshot.ID)
		}
	}
	follow := fmt.Sprintf("%d replicas follow", running)
	if running == 1 {
		follow = "1 replica follows"
	}
	switch {
	case running == 0:
		return "No replica is running; each follows when it starts.", true
	case len(behind) == 0:
		return follow + ".", true
	}
	const max = 5
	more := ""
	if len(behind) > max {
		more, behind = fmt.Sprintf(" and %d more", len(behind)-max), behind[:max]
	}
	return fmt.Sprintf("%d of %s; not yet: %s%s.", running-len(behind), follow, strings.Join(behind, ", "), more), false
}

// orderList is the command that lists the orders of a kind, such as "mute list". "mute" alone does the same.
type orderList struct {
	kind          steering.Kind
	parent, usage string
	none          string // written if no order is in force
}

func (l orderList) command() *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: l.usage,
		Description: fmt.Sprintf(`It does the same as "notifier %[1]s" without a command.

Example:
   notifier %[1]s list`, l.parent),
		Flags: []cli.Flag{listFlag()},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := cmdline.NoArguments(cmd); err != nil {
				return err
			}
			return l.run(ctx, cmd)
		},
	}
}

func (l orderList) run(ctx context.Context, cmd *cli.Command) error {
	list := func(ctx context.Context, s steer) error { return s.list(ctx, l.kind, l.none) }
	return withSteering(ctx, cmd, list)
}

// list writes the orders of a kind that are in force.
func (s steer) list(ctx context.Context, kind steering.Kind, none string) error {
	state, err := s.store.Steering.Read(ctx)
	if err != nil {
		return redisError(err)
	}
	orders := state.InForce(state.Now, kind)
	if s.json {
		encoder := term.NewJSON(s.out)
		for _, order := range orders {
			if err := encoder.Encode(order); err != nil {
				return err
			}
		}
		return nil
	}
	if len(orders) == 0 {
		_, err := fmt.Fprintln(s.out, none)
		return err
	}
	table := term.NewTable(s.out)
	if kind == steering.Mute {
		table.Row("PATTERN", "UNTIL", "LEFT", "BY", "REASON")
	} else {
		table.Row("SCOPE", "LIMIT", "UNTIL", "LEFT", "BY", "REASON")
	}
	for _, o := range orders {
		cells := []any{o.Target}
		if kind == steering.Limit {
			cells = append(cells, o.Limit)
		}
		cells = append(cells, o.Until.Format(time.RFC3339), term.Duration(o.Until.Sub(state.Now)))
		table.Row(append(cells, term.Cell(o.By), term.Cell(o.Reason))...)
	}
	return table.Flush()
}
