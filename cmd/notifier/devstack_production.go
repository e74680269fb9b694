//go:build production

package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v3"
)

// errNoDevstack names the build that has what this one leaves out.
var errNoDevstack = errors.New(`this build has no embedded servers, because it was made with "-tags production"; ` +
	`run "go run ./cmd/notifier demo", "dev" or "simulate" from the sources, or the image target "demo"`)

func demoCommand() *cli.Command {
	cmd := withoutDevstack("demo")
	cmd.Flags = []cli.Flag{&cli.BoolFlag{Name: "json", Hidden: true}} // so that the error is the same with it
	return cmd
}

func devCommand() *cli.Command {
	cmd := withoutDevstack("dev")
	cmd.Flags = []cli.Flag{&cli.BoolFlag{Name: "slack-revoked", Hidden: true}} // so that the error is the same with them
	for _, name := range []string{"slack-only", "slack-channel-limit", "slack-workspace-limit", "slack-retry-after", "slack-fail"} {
		cmd.Flags = append(cmd.Flags, &cli.StringFlag{Name: name, Hidden: true})
	}
	return cmd
}

func simulateCommand() *cli.Command {
	cmd := withoutDevstack("simulate")
	for _, name := range []string{"global", "category", "overrides", "group", "group-overrides", "reserve", "dedupe"} {
		cmd.Flags = append(cmd.Flags, &cli.StringFlag{Name: name, Hidden: true}) // so that the error is the same with them
	}
	for _, name := range []string{"json", "skip-bad"} {
		cmd.Flags = append(cmd.Flags, &cli.BoolFlag{Name: name, Hidden: true})
	}
	return cmd
}

func withoutDevstack(name string) *cli.Command {
	return &cli.Command{
		Name:        name,
		Usage:       "not in this build: it has no embedded servers",
		Description: errNoDevstack.Error(),
		Action:      func(context.Context, *cli.Command) error { return errNoDevstack },
	}
}
