package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/user"
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

// orderFlags are the flags of the commands that give an order.
func orderFlags() []cli.Flag {
	return []cli.Flag{
		&cli.DurationFlag{
			Name: "for", Usage: "`DURATION`, 1s to 744h (31 days)",
			Required: true, HideDefault: true, Validator: checkLength,
		},
		&cli.StringFlag{Name: "reason", Usage: "`TEXT` that logs, status and lists show with it"},
		&cli.StringFlag{Name: "by", Usage: "`NAME` shown as the author", Sources: cli.EnvVars("USER")},
	}
}

func checkLength(length time.Duration) error {
	if length < steering.Shortest || length > steering.Longest || length%time.Microsecond != 0 {
		return errors.New("expected 1s to 744h (31 days)")
	}
	return nil
}

// author returns -by or the user of this process.
func author(cmd *cli.Command) string {
	name := "unknown"
	if current, err := user.Current(); err == nil {
		name = cmp.Or(current.Username, name)
	}
	return cmp.Or(cmd.String("by"), name)
}

func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "write each as a line of JSON", Local: true}
}

// withOrders opens the orders in Redis for a call of do. The source knows the running workers. do may need
// more settings than the group of Redis.
func withOrders(
	ctx context.Context, do func(context.Context, *steering.Store, status.Source) error, needs ...string,
) error {
	s, err := settings.Load(append(needs, settings.GroupRedis)...)
	if err != nil {
		return err
	}
	app.SilenceLibraries()
	defer func() { _ = s.Store.Redis.Close() }() // no call is in progress
	orders, err := steering.NewStore(s.Store.Redis, s.Store.Namespace)
	if err != nil {
		return fmt.Errorf("REDIS_NAMESPACE: %w", err)
	}
	replicas, err := report.NewReader(s.Store.Redis, s.Store.Namespace)
	if err != nil {
		return fmt.Errorf("REDIS_NAMESPACE: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	return do(ctx, orders, status.Source{Reports: replicas, Own: s.Deciding()})
}

// redisError names the setting and, if Redis refuses writes, the reason instead of the reply of a script.
func redisError(err error) error {
	if text := status.RedisRefusal(err.Error()); text != "" {
		return fmt.Errorf("REDIS_URL: %s; nothing was changed, \"notifier check\" says what to do", text)
	}
	return fmt.Errorf("REDIS_URL: %w", err)
}

// checkOccurs rejects categories that occur with the settings of no running worker. Without a worker the
// settings here count.
func checkOccurs(cmd *cli.Command, replicas []config.Deciding, categories string) error {
	var first error
	for _, replica := range replicas {
		err := status.CheckOccurs(replica, categories)
		if err == nil {
			return nil
		}
		first = cmp.Or(first, err)
	}
	return categoryUsage(cmd, first)
}

// setOrder stores an order for the time of -for, and writes its row. check may refuse it for the settings of
// the running workers. needs are the settings that the check needs if none runs.
func setOrder(
	ctx context.Context, cmd *cli.Command, order steering.Order,
	check func(replicas []config.Deciding) error, needs ...string,
) error {
	set := func(ctx context.Context, orders *steering.Store, source status.Source) error {
		replicas, err := source.Running(ctx)
		if err != nil {
			return redisError(err)
		}
		if err := check(replicas); err != nil {
			return err
		}
		order, _, err := orders.Set(ctx, order, cmd.Duration("for"))
		if errors.Is(err, steering.ErrFull) {
			return err
		}
		if err != nil {
			return redisError(err)
		}
		return writeOrders(cmd.Root().Writer, order.Since, []steering.Order{order})
	}
	return withOrders(ctx, set, needs...)
}

// endOrder is the action that ends an order before its time, and lists the other orders of its kind.
func endOrder(kind steering.Kind) cli.ActionFunc {
	return func(ctx context.Context, cmd *cli.Command) error {
		if cmd.NArg() != 1 {
			return cmdline.Usagef(cmd, "%d arguments, expected one %s", cmd.NArg(), cmd.ArgsUsage)
		}
		target := cmd.Args().First()
		return withOrders(ctx, func(ctx context.Context, orders *steering.Store, _ status.Source) error {
			found, _, err := orders.Clear(ctx, kind, target)
			if err != nil {
				return redisError(err)
			}
			if !found {
				return fmt.Errorf("no %s of %q is in force; \"notifier %s\" lists those that are",
					kind, target, kind)
			}
			if err := writeInForce(ctx, cmd, orders, kind); err != nil {
				return fmt.Errorf("%s %q has ended, but the others cannot be listed: %w", kind, target, err)
			}
			return nil
		})
	}
}

// listCommand lists the orders of a kind, as the command above it does without arguments.
func listCommand(kind steering.Kind, usage string) *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: usage,
		Description: fmt.Sprintf(`It does the same as "notifier %[1]s" without a command.

Example:
   notifier %[1]s list`, kind),
		Flags:  []cli.Flag{jsonFlag()},
		Action: listOrders(kind),
	}
}

// listOrders is the action that lists the orders of a kind.
func listOrders(kind steering.Kind) cli.ActionFunc {
	return func(ctx context.Context, cmd *cli.Command) error {
		return withOrders(ctx, func(ctx context.Context, orders *steering.Store, _ status.Source) error {
			return writeInForce(ctx, cmd, orders, kind)
		})
	}
}

// writeInForce writes the orders of a kind that are in force.
func writeInForce(ctx context.Context, cmd *cli.Command, orders *steering.Store, kind steering.Kind) error {
	state, err := orders.Read(ctx)
	if err != nil {
		return redisError(err)
	}
	inForce := state.InForce(state.Now, kind)
	out := cmd.Root().Writer
	switch {
	case cmd.Bool("json"):
		return writeJSON(out, inForce)
	case len(inForce) == 0 && kind == steering.Limit:
		_, err := fmt.Fprintln(out, "no temporary limit is in force")
		return err
	case len(inForce) == 0:
		_, err := fmt.Fprintln(out, "no mute is in force")
		return err
	}
	return writeOrders(out, state.Now, inForce)
}

// writeOrders writes orders of one kind as a table.
func writeOrders(out io.Writer, now time.Time, orders []steering.Order) error {
	table := term.NewTable(out)
	if orders[0].Kind == steering.Mute {
		table.Row("PATTERN", "UNTIL", "LEFT", "BY", "REASON")
	} else {
		table.Row("SCOPE", "LIMIT", "UNTIL", "LEFT", "BY", "REASON")
	}
	for _, o := range orders {
		cells := []any{o.Target}
		if o.Kind == steering.Limit {
			cells = append(cells, o.Limit)
		}
		cells = append(cells, o.Until.Format(time.RFC3339), term.Duration(o.Until.Sub(now)))
		table.Row(append(cells, term.Cell(o.By), term.Cell(o.Reason))...)
	}
	return table.Flush()
}
