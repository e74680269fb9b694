package main

import (
	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/devstack"
)

// slackModeFlags are how the fake Slack of dev behaves from the start.
func slackModeFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "slack-channel-limit", Usage: "posts that the fake Slack takes in one channel, `LIMIT` such as 12/10s; then 429 for that channel"},
		&cli.StringFlag{Name: "slack-workspace-limit", Usage: "posts that it takes in all channels together, `LIMIT` such as 100/1m; then 429 for all"},
		&cli.StringFlag{Name: "slack-retry-after", Usage: "`DURATION` of the pause that a 429 begins, in whole seconds; else until there is room again"},
		&cli.StringSliceFlag{Name: "slack-fail", Usage: "posts with a text fail, `TEXT=KIND`; KIND is html (403 and a page) or internal_error; may be repeated"},
		&cli.BoolFlag{Name: "slack-revoked", Usage: "every call answers token_revoked"},
	}
}

// slackMode reads slackModeFlags. The error says which flag is wrong, and what was expected.
func slackMode(cmd *cli.Command) (m devstack.Mode, err error) {
	fail := func(flag string, err error) (devstack.Mode, error) {
		return m, cmdline.Usage(cmd, "-"+flag+": "+err.Error())
	}
	if flag := "slack-channel-limit"; cmd.IsSet(flag) {
		if m.ChannelLimit, err = devstack.ParseModeLimit(cmd.String(flag)); err != nil {
			return fail(flag, err)
		}
	}
	if flag := "slack-workspace-limit"; cmd.IsSet(flag) {
		if m.WorkspaceLimit, err = devstack.ParseModeLimit(cmd.String(flag)); err != nil {
			return fail(flag, err)
		}
	}
	if flag := "slack-retry-after"; cmd.IsSet(flag) {
		if m.RetryAfter, err = devstack.ParseModePause(cmd.String(flag)); err != nil {
			return fail(flag, err)
		}
	}
	for _, text := range cmd.StringSlice("slack-fail") {
		failure, err := devstack.ParseFailure(text)
		if err != nil {
			return fail("slack-fail", err)
		}
		m.Fail = append(m.Fail, failure)
	}
	m.Revoked = cmd.Bool("slack-revoked")
	if err := m.Check(); err != nil {
		return fail("slack-fail", err) // too many of them: everything else was checked
	}
	return m, nil
}
