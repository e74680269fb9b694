package main

import (
	"context"
	"os"
	"os/exec"

	"notifier/bench/internal/rig"
)

// bench is the setup of one run.
type bench struct {
	rig.Servers
	worker string // path of the notifier binary
	form   form
	events int
}

func (b *bench) setUp(ctx context.Context) (err error) {
	if err := b.Start("storm"); err != nil {
		return err
	}
	b.worker, err = b.BuildWorker(ctx, ".")
	return err
}

// create recreates the stream, empty, and its consumer, both configured as a worker would.
func (b *bench) create(ctx context.Context, stream, consumer, subject string) error {
	return b.Create(ctx, stream, subject, rig.Consumer(consumer))
}

// serve returns the command that runs a worker. The settings override the benchmark's defaults.
func (b *bench) serve(namespace string, log *os.File, settings ...string) *exec.Cmd {
	command := exec.Command(b.worker, "serve")
	command.Env = append(append(
		os.Environ(),
		"NATS_URL="+b.NATSURL,
		"REDIS_URL="+b.RedisURL,
		"REDIS_NAMESPACE="+namespace,
		"SLACK_BOT_TOKEN=xoxb-storm",
		"SLACK_CHANNEL=#storm",
		"SLACK_API_URL="+b.Slack.APIURL(),
		"ADMIN_ADDR=",
		"SLACK_PACE=off",
	), settings...)
	command.Stdout, command.Stderr = log, os.Stderr
	return command
}
