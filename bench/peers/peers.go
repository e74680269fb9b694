package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// limits holds the limits of a trial and the number of channels, the same for all peers.
type limits struct {
	global, category int
	window           time.Duration
	channels         int
}

type peer struct {
	name     string
	ours     bool
	replicas int
	push     bool // uses a push consumer
	command  func(*bench, limits) *exec.Cmd
}

func peers() []peer {
	return []peer{
		{name: "a hundred lines, plain script", replicas: 1, command: handmade("script")},
		{name: "the same on redis_rate", replicas: 1, command: handmade("redis_rate")},
		{name: "the same in memory, one process", replicas: 1, command: handmade("memory")},
		{name: "Bento, its own rate limit", replicas: 1, push: true, command: bento("-own")},
		{name: "Bento, plain script", replicas: 1, push: true, command: bento()},
		{name: "notifier", ours: true, replicas: 1, command: notifier},
		{name: "notifier, 3 replicas", ours: true, replicas: 3, command: notifier},
	}
}

func handmade(limiter string) func(*bench, limits) *exec.Cmd {
	return func(b *bench, l limits) *exec.Cmd { return b.peer(b.handmade, l, "-limiter", limiter) }
}

func bento(flags ...string) func(*bench, limits) *exec.Cmd {
	return func(b *bench, l limits) *exec.Cmd { return b.peer(b.bento, l, flags...) }
}

// peer returns the command for a peer that this module builds.
func (b *bench) peer(program string, l limits, flags ...string) *exec.Cmd {
	command := exec.Command(
		program,
		append(flags, "-global", strconv.Itoa(l.global), "-category", strconv.Itoa(l.category),
			"-window", l.window.String(), "-channels", strconv.Itoa(l.channels))...)
	command.Env = append(os.Environ(), b.environment()...)
	return command
}

// notifier returns the command for the released worker. Apart from addresses, routes and limits, only the
// admin server differs from the default settings: it is off.
func notifier(b *bench, l limits) *exec.Cmd {
	var routes []string
	for i := range categories {
		routes = append(routes, fmt.Sprintf("category-%d=%s", i, channel(i%l.channels)))
	}
	command := exec.Command(b.notifier, "serve")
	command.Env = append(
		append(os.Environ(), b.environment()...),
		"ADMIN_ADDR=",
		"SLACK_CHANNEL="+channel(0),
		"SLACK_ROUTES="+strings.Join(routes, ","),
		fmt.Sprintf(
			"LIMIT_GLOBAL=%d/%s",
			l.global,
			l.window,
		),
		fmt.Sprintf("LIMIT_CATEGORY=%d/%s", l.category, l.window),
	)
	return command
}

func (b *bench) environment() []string {
	return []string{
		"NATS_URL=" + b.NATSURL,
		"REDIS_URL=" + b.RedisURL,
		"SLACK_API_URL=" + b.Slack.APIURL(),
		"SLACK_BOT_TOKEN=xoxb-peers",
	}
}

func channel(n int) string { return "#channel-" + strconv.Itoa(n) }
