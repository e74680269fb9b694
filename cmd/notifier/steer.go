package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"notifier/internal/app"
	cmdline "notifier/internal/cli"
	"notifier/internal/settings"
	"notifier/internal/status/stats"
	"notifier/internal/steering"
	"notifier/internal/term"
)

// What "mute" and "limit" share.

const (
	// followed is how long the commands wait until all replicas follow, which takes them two seconds.
	followed   = 3 * time.Second
	followPoll = 200 * time.Millisecond
)

// steer is one run of one of the commands.
type steer struct {
	store app.Store
	json  bool
	out   io.Writer
}

// withSteering opens the Redis of the settings. Its errors name the variable.
func withSteering(ctx context.Context, cmd *cli.Command, do func(ctx context.Context, s steer) error) error {
	return withStore(func(store app.Store) error {
		ctx, cancel := context.WithTimeout(ctx, redisTimeout+followed)
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

// givable rejects what no category of NATS_SUBJECT matches.
func givable(cmd *cli.Command, categories string) error {
	subject, err := settings.LoadSubject()
	if err != nil {
		return err
	}
	if err := repeatsPrefix(subject, categories); err != nil {
		return err
	}
	if !subject.Gives(categories) {
		return cmdline.Usagef(cmd, "%s never matches, because the categories of NATS_SUBJECT %q are one token; "+
			"expected a name or pattern without dots", categories, subject)
	}
	return nil
}

// set stores an order and shows what is in force now.
func (s steer) set(ctx context.Context, order steering.Order, length time.Duration, notes ...string) error {
	before, err := s.store.Steering.Read(ctx)
	if err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
	}
	order, version, err := s.store.Steering.Set(ctx, order, length)
	if err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
	}
	lines := []string{fmt.Sprintf("%s is in force until %s, for %s.",
		order.What(), order.Until.Format(time.RFC3339), term.ShortDuration(length))}
	for _, replaced := range before.InForce(before.Now, order.Kind) {
		if replaced.Target == order.Target {
			lines = append(lines, fmt.Sprintf("It replaces %s until %s by %s, which does not come back.",
				replaced.What(), replaced.Until.Format(time.RFC3339), replaced.By))
		}
	}
	// The order is in force, whether or not there is something to remark.
	remarks, _ := s.store.Status.Remarks(ctx, order)
	return s.report(ctx, version, slices.Concat(lines, notes, remarks))
}

// end ends an order before its time.
func (s steer) end(ctx context.Context, kind steering.Kind, target, nothing string) error {
	found, version, err := s.store.Steering.Clear(ctx, kind, target)
	if err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
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

// unknown is the error where there is nothing to end: it names what there is.
func (s steer) unknown(ctx context.Context, kind steering.Kind, nothing string) error {
	state, err := s.store.Steering.Read(ctx)
	if err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
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

// report writes what was done, and waits until all replicas follow.
func (s steer) report(ctx context.Context, version int64, lines []string) error {
	if _, err := fmt.Fprintln(s.out, term.Lines(strings.Join(lines, "\n"))); err != nil {
		return err
	}
	deadline := time.Now().Add(followed)
	for {
		replicas, err := s.store.Status.Stats.Replicas(ctx)
		if err != nil {
			return fmt.Errorf("it is stored, and it is not known which replicas follow: REDIS_URL: %w", err)
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

// followers is how many of the replicas that run follow a version, and whether all do. A silent one has died,
// or follows when it goes on.
func followers(replicas []stats.Replica, version int64) (text string, all bool) {
	replicas = stats.Running(replicas)
	var behind []string
	for _, replica := range replicas {
		if replica.Steering < version {
			behind = append(behind, replica.ID)
		}
	}
	switch {
	case len(replicas) == 0:
		return "No replica is running; each follows when it starts.", true
	case len(behind) == 0:
		return fmt.Sprintf("%s.", plural(len(replicas), "replica follows", "replicas follow")), true
	}
	const most = 5
	more := ""
	if len(behind) > most {
		more, behind = fmt.Sprintf(" and %d more", len(behind)-most), behind[:most]
	}
	return fmt.Sprintf(
		"%d of %s; not yet: %s%s.",
		len(replicas)-len(behind),
		plural(len(replicas), "replica follows", "replicas follow"),
		strings.Join(behind, ", "),
		more,
	), false
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// orderList is what lists the orders of a kind: a command below another one, which does the same by itself.
type orderList struct {
	kind          steering.Kind
	parent, usage string
	none          string // what it writes where nothing is in force
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

// list writes what is in force of a kind.
func (s steer) list(ctx context.Context, kind steering.Kind, none string) error {
	state, err := s.store.Steering.Read(ctx)
	if err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
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
