package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/urfave/cli/v3"

	"notifier/internal/app"
	cmdline "notifier/internal/cli"
	"notifier/internal/devstack"
	"notifier/internal/settings"
)

func devCommand() *cli.Command {
	return &cli.Command{
		Name:  "dev",
		Usage: "run NATS, Redis, a fake Slack with an inbox page and one worker in this process",
		Description: `Nothing needs to be installed or set. Publish from another terminal and watch the inbox page, and the status page that
every worker has; the outcome of each event is logged below. Limits and other settings of the worker come from the
environment as for "serve". Everything is kept in memory and in a temporary folder, and is gone at the end.

The fake Slack accepts everything, until the form on its inbox page makes it behave as the real one does on a bad day.

Examples:
   notifier-dev dev
   LIMIT_CATEGORY=3/1m LOG_FORMAT=json notifier-dev dev
   notifier-dev dev -https slack.pem`,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "slack-only", Usage: "run only the fake Slack, on `ADDR` (host:port)"},
		}, httpsFlags()...),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.IsSet("slack-only") {
				return runFakeSlack(ctx, cmd)
			}
			return runDev(ctx, cmd)
		},
	}
}

// runDev runs until ctx ends.
func runDev(ctx context.Context, cmd *cli.Command) (err error) {
	root := cmd.Root()
	root.ErrWriter = app.Unblocked(root.ErrWriter) // as in "notifier serve"
	out, errOut := root.Writer, root.ErrWriter
	secure, err := slackTLS(cmd, devSlackAddr)
	if err != nil {
		return err
	}
	servers, err := startServers(devNATSAddr, devRedisAddr, devSlackAddr, secure)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.close()) }()

	instead := servers.settings()
	if settings.IsSet("SLACK_CHANNEL") {
		delete(instead, "SLACK_CHANNEL")
	}
	if !settings.IsSet("LOG_FORMAT") {
		instead["LOG_FORMAT"] = "console"
	}
	s, err := settings.LoadWith(instead)
	if err != nil {
		return err
	}
	servers.trust(&s)
	wantedAddr := s.AdminAddr
	if wantedAddr != "" {
		s.AdminAddr = devstack.FreeAddr(wantedAddr)
	}
	if err := printAddresses(out, servers, s, wantedAddr, cmd.String(flagHTTPS)); err != nil {
		return err
	}
	log, stopLog := app.NewLog(out, errOut, s.LogLevel, s.LogConsole)
	defer func() { err = errors.Join(err, stopLog()) }()
	return app.Run(ctx, s, log, nil)
}

// printAddresses prints where everything is, and how to publish to it from a terminal with the same
// environment.
func printAddresses(
	out io.Writer,
	servers devServers,
	s settings.Settings,
	wantedAddr string,
	certificateFile string,
) error {
	taken := func(got, wanted string) string {
		_, gotPort, _ := net.SplitHostPort(got)
		_, wantedPort, _ := net.SplitHostPort(wanted)
		if gotPort != wantedPort && wantedPort != "0" {
			return "   (" + wanted + " was taken)"
		}
		return ""
	}
	page, health := "none, ADMIN_ADDR is empty", "none, ADMIN_ADDR is empty"
	if s.AdminAddr != "" {
		page = "http://" + s.AdminAddr + taken(s.AdminAddr, wantedAddr)
		health = "http://" + s.AdminAddr + "/readyz" + taken(s.AdminAddr, wantedAddr)
	}
	slack := ""
	if certificateFile != "" {
		const row = "\n  Slack    SLACK_API_URL=%s SSL_CERT_FILE=%s"
		slack = fmt.Sprintf(row, servers.slack.APIURL(), certificateFile)
	}
	_, slackAddr, _ := strings.Cut(servers.slack.URL(), "://")
	publish := "notifier publish"
	exports := ""
	if settings.IsSet("NATS_URL") || servers.nats.Addr() != devNATSAddr {
		exports += " NATS_URL=" + servers.nats.URL()
	}
	if settings.IsSet("REDIS_URL") || servers.redis.Addr() != devRedisAddr { // status and mute must not reach another's
		exports += " REDIS_URL=" + servers.redis.URL()
	}
	if exports != "" {
		publish = "export" + exports + "\n    " + publish
	}
	_, err := fmt.Fprintf(out, `notifier-dev dev: limits %s overall, %s per category; stop with Ctrl-C

  Inbox    %s%s%s
  Status   %s
  NATS     %s%s
  Redis    %s%s
  Health   %s

  In another terminal:
    %s errors "disk full"

`, s.Store.Limits.Global, s.Store.Limits.Category,
		servers.slack.URL(), taken(slackAddr, devSlackAddr), slack, page,
		servers.nats.URL(), taken(servers.nats.Addr(), devNATSAddr),
		servers.redis.URL(), taken(servers.redis.Addr(), devRedisAddr),
		health, publish)
	return err
}

// runFakeSlack runs only the fake Slack until ctx ends: for containers that stand in for Slack.
func runFakeSlack(ctx context.Context, cmd *cli.Command) (err error) {
	addr := cmd.String("slack-only")
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return &cmdline.UsageError{
			Text: fmt.Sprintf("-slack-only %q, expected host:port such as 0.0.0.0:8090", addr),
		}
	}
	secure, err := slackTLS(cmd, addr)
	if err != nil {
		return err
	}
	slack, err := devstack.StartSlackTLS(addr, secure)
	if err != nil {
		return fmt.Errorf("-slack-only: %w", err)
	}
	defer func() { err = errors.Join(err, slack.Close()) }()
	line := fmt.Sprintf("fake Slack: inbox %s, SLACK_API_URL=%s, SLACK_WEBHOOK_URL=%s",
		slack.URL(), slack.APIURL(), slack.WebhookURL())
	if secure != nil {
		line += ", SSL_CERT_FILE=" + cmd.String(flagHTTPS)
	}
	if _, err := fmt.Fprintln(cmd.Root().Writer, line); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
