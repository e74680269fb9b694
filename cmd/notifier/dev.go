//go:build !production

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"notifier/internal/devstack"
)

func devCommand() *cli.Command {
	return &cli.Command{
		Name:  "dev",
		Usage: "run NATS, Redis, a fake Slack with an inbox page and one worker in this process",
		Description: `Nothing needs to be installed or set. Publish from another terminal and watch the inbox page, and the status page
that every worker has; what became of each event is logged below. Limits and other settings of the worker come from the environment as for "serve".
Everything is kept in memory and in a temporary folder, and gone at the end.

Examples:
   notifier dev
   LIMIT_CATEGORY=3/1m LOG_FORMAT=json notifier dev`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "slack-only", Usage: "run only the fake Slack, on `ADDR` (host:port)"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := noArguments(cmd); err != nil {
				return err
			}
			if cmd.IsSet("slack-only") {
				return runFakeSlack(ctx, cmd.String("slack-only"), cmd.Root().Writer)
			}
			return runDev(ctx, cmd.Root().Writer)
		},
	}
}

// runDev runs until ctx ends.
func runDev(ctx context.Context, out io.Writer) (err error) {
	neighbours, err := startNeighbours(devNATSAddr, devRedisAddr, devSlackAddr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, neighbours.close()) }()

	f := &faults{}
	env := readEnvironment(f)
	wanted := env
	neighbours.pointAt(&env)
	if env.AdminAddr != "" {
		env.AdminAddr = devstack.FreeAddr(env.AdminAddr)
	}
	if !isSet("LOG_FORMAT") {
		env.LogFormat = "console"
	}
	settings := parseConfig(env, f)
	if err := f.err(); err != nil {
		return err
	}
	if err := greet(out, neighbours, settings, wanted); err != nil {
		return err
	}
	log, stopLog := newLog(out, settings.logLevel, settings.logConsole)
	defer stopLog()
	redis.SetLogger(redisLog{log})
	return serve(ctx, settings, log, nil)
}

// greet says where everything is, and how to publish to it from a terminal with the same environment.
func greet(out io.Writer, neighbours devNeighbours, settings config, wanted environment) error {
	taken := func(got, wanted string) string {
		_, gotPort, _ := net.SplitHostPort(got)
		_, wantedPort, _ := net.SplitHostPort(wanted)
		if gotPort != wantedPort && wantedPort != "0" {
			return "   (" + wanted + " was taken)"
		}
		return ""
	}
	page, health := "none, ADMIN_ADDR is empty", "none, ADMIN_ADDR is empty"
	if settings.adminAddr != "" {
		page = "http://" + settings.adminAddr + taken(settings.adminAddr, wanted.AdminAddr)
		health = "http://" + settings.adminAddr + "/readyz" + taken(settings.adminAddr, wanted.AdminAddr)
	}
	publish := "notifier publish"
	if neighbours.nats.URL() != wanted.NATSURL {
		publish = "NATS_URL=" + neighbours.nats.URL() + " " + publish
	}
	_, err := fmt.Fprintf(out, `notifier dev: limits %s in all, %s per category; Ctrl-C ends it

  Inbox    %s%s
  Status   %s
  NATS     %s%s
  Redis    %s%s
  Health   %s

  In another terminal:
    %s errors "disk full"

`, settings.rules.Global, settings.rules.Category,
		neighbours.slack.URL(), taken(strings.TrimPrefix(neighbours.slack.URL(), "http://"), devSlackAddr), page,
		neighbours.nats.URL(), taken(neighbours.nats.Addr(), devNATSAddr),
		neighbours.redis.URL(), taken(neighbours.redis.Addr(), devRedisAddr),
		health, publish)
	return err
}

// runFakeSlack runs the fake Slack alone until ctx ends: for containers that stand in for Slack.
func runFakeSlack(ctx context.Context, addr string, out io.Writer) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return &usageError{fmt.Sprintf("-slack-only %q, expected host:port such as 0.0.0.0:8090", addr)}
	}
	slack, err := devstack.StartSlack(addr)
	if err != nil {
		return fmt.Errorf("-slack-only: %w", err)
	}
	if _, err := fmt.Fprintf(out, "fake Slack: inbox %s, SLACK_API_URL=%s, SLACK_WEBHOOK_URL=%s\n", slack.URL(), slack.APIURL(), slack.WebhookURL()); err != nil {
		return err
	}
	<-ctx.Done()
	return slack.Close()
}
