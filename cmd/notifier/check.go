package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"
	"go.uber.org/zap"
)

// checkPatience is how long one connection, or one answer, is waited for.
const checkPatience = 5 * time.Second

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "look whether a worker with these settings could do its job; changes nothing",
		Description: `Reads the settings as a worker does, and asks NATS, Redis and Slack. Nothing is created, published, charged or posted, so
it may be run beside workers at any time. First come the settings that are not left to their defaults, with their source,
then a line for each thing that was looked at:
   ok     as it should be
   note   good to know
   warn   it works, and something about it can bite: with what to do about it
   fail   a worker could not do its job
Secrets are never shown. Exit code 0: nothing has failed; 1: something has; 2: bad settings, listed as everywhere.

Examples:
   notifier check
   docker compose run --rm notifier check -all
   notifier check -json | jq '.checks[] | select(.level != "ok")'`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Usage: "show the settings that have their defaults too"},
			&cli.BoolFlag{Name: "json", Usage: "write one JSON object, with all settings, instead of the lines"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := noArguments(cmd); err != nil {
				return err
			}
			settings, origins, err := loadOrigins()
			if err != nil {
				return err
			}
			defer func() { _ = settings.redis.Close() }()
			redis.SetLogger(redisLog{zap.NewNop()}) // what it has to say comes back as an error too
			check := checkRun{settings: settings, origins: origins, out: cmd.Root().Writer, errOut: cmd.Root().ErrWriter}
			if cmd.Bool("json") {
				return check.json(ctx)
			}
			return check.lines(ctx, cmd.Bool("all"))
		},
	}
}

// checkRun is one run of the command.
type checkRun struct {
	settings config
	origins  []origin
	out      io.Writer
	errOut   io.Writer
}

// subject is something that is looked at, apart from all others.
type subject struct {
	name     string
	findings *findings
	done     chan struct{}
}

// start looks at everything at the same time, and gives the subjects in the order in which they are told.
func (c *checkRun) start(ctx context.Context) []subject {
	looks := []struct {
		name string
		look func(context.Context, config, *findings)
	}{
		{"settings", checkSettings}, {"limits", checkLimits}, {"nats", checkNATS}, {"redis", checkRedis}, {"slack", checkSlack},
	}
	subjects := make([]subject, len(looks))
	for i, l := range looks {
		s := subject{name: l.name, findings: &findings{}, done: make(chan struct{})}
		subjects[i] = s
		go func() {
			defer close(s.done)
			l.look(ctx, c.settings, s.findings)
		}()
	}
	return subjects
}

// lines tells each subject as soon as it and those before it have been looked at.
func (c *checkRun) lines(ctx context.Context, all bool) error {
	subjects := c.start(ctx)
	if err := writeOrigins(c.out, c.origins, all); err != nil {
		return err
	}
	screen := terminalOf(c.out)
	for i, s := range subjects {
		c.wait(subjects[i:])
		for _, f := range s.findings.list {
			if err := f.write(c.out, screen, s.name); err != nil {
				return err
			}
		}
	}
	if err := conclude(ctx, subjects); err != nil {
		return err
	}
	_, err := fmt.Fprintln(c.out, "\nnothing has failed"+warnings(subjects))
	return err
}

// wait waits for the first of the subjects. After a second, and whenever one has come since, it says on standard error
// which ones it still waits for.
func (c *checkRun) wait(subjects []subject) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	told := ""
	for {
		select {
		case <-subjects[0].done:
			return
		case <-ticker.C:
		}
		if open := unfinished(subjects); open != told {
			told = open
			_, _ = fmt.Fprintf(c.errOut, "waiting for %s\n", open) // the lines are what counts
		}
	}
}

func unfinished(subjects []subject) string {
	var names []string
	for _, s := range subjects {
		select {
		case <-s.done:
		default:
			names = append(names, s.name)
		}
	}
	return strings.Join(names, ", ")
}

func (c *checkRun) json(ctx context.Context) error {
	subjects := c.start(ctx)
	for i := range subjects {
		c.wait(subjects[i:])
	}
	if err := writeCheckJSON(c.out, c.origins, subjects); err != nil {
		return err
	}
	return conclude(ctx, subjects)
}

// conclude is the error that names what has failed, or nil.
func conclude(ctx context.Context, subjects []subject) error {
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	var failed []string
	for _, s := range subjects {
		if s.findings.count(levelFail) > 0 {
			failed = append(failed, s.name)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return errors.New("failed: " + strings.Join(failed, ", "))
}

// warnings is ", 2 warnings", or nothing.
func warnings(subjects []subject) string {
	n := 0
	for _, s := range subjects {
		n += s.findings.count(levelWarn)
	}
	if n == 0 {
		return ""
	}
	return ", " + counted(n, "warning")
}
