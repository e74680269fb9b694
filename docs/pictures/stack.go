package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
	"notifier/internal/devstack/embedded"
)

const replicas = 3

// stack is NATS, Redis with a clock that can be moved, a fake Slack, and workers in processes of their own.
type stack struct {
	nats    *devstack.NATS
	redis   *miniredis.Miniredis
	slack   *devstack.Slack
	workers []*exec.Cmd
	pages   []string     // URLs of the workers' pages
	settled atomic.Int64 // events, by the workers' logs
}

func startStack(ctx context.Context, binary string) (s *stack, err error) {
	s = &stack{redis: embedded.NewStore()}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.nats, err = devstack.StartNATS("127.0.0.1:0", ""); err != nil {
		return nil, err
	}
	if s.slack, err = devstack.StartSlack("127.0.0.1:0"); err != nil {
		return nil, err
	}
	if err = s.redis.StartAddr("127.0.0.1:0"); err != nil {
		return nil, err
	}
	s.redis.SetTime(time.Now().Add(-time.Hour))
	for range replicas {
		page, err := s.startWorker(ctx, binary)
		if err != nil {
			return nil, err
		}
		s.pages = append(s.pages, page)
	}
	return s, nil
}

// startWorker starts a worker and returns the URL of its page.
func (s *stack) startWorker(ctx context.Context, binary string) (page string, err error) {
	worker := exec.CommandContext(ctx, binary, "serve")
	worker.Env = []string{
		"NATS_URL=" + s.nats.URL(),
		"REDIS_URL=redis://" + s.redis.Addr(),
		"SLACK_API_URL=" + s.slack.APIURL(),
		"SLACK_BOT_TOKEN=xoxb-fake-token-of-the-fake-slack",
		"SLACK_CHANNEL=#notifications",
		"ADMIN_ADDR=127.0.0.1:0",
		"SLACK_PACE=off", // a pace would wait for the clock of Redis, which stands still
	}
	out, err := worker.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := worker.Start(); err != nil {
		return "", err
	}
	s.workers = append(s.workers, worker)
	lines, listens := bufio.NewScanner(out), make(chan string, 1)
	go func() {
		defer close(listens)
		for lines.Scan() {
			var line struct{ Msg, Addr, Outcome string }
			_ = json.Unmarshal(lines.Bytes(), &line) // other lines lack these fields
			if line.Msg == "admin server listens" {
				listens <- "http://" + line.Addr
			}
			if line.Outcome != "" {
				s.settled.Add(1)
			}
		}
	}()
	page, found := <-listens
	if !found {
		return "", errors.New("a worker exited before it listened")
	}
	return page, nil
}

func (s *stack) close() {
	for _, worker := range s.workers {
		_ = worker.Process.Signal(syscall.SIGTERM)
		_ = worker.Wait() // SIGTERM ends it
	}
	s.redis.Close()
	if s.slack != nil {
		_ = s.slack.Close()
	}
	if s.nats != nil {
		_ = s.nats.Close()
	}
}

// hour publishes an hour of events as a team's services might: a few now and then, and storms of errors.
func (s *stack) hour(ctx context.Context) error {
	connection, err := nats.Connect(s.nats.URL())
	if err != nil {
		return err
	}
	defer connection.Close()
	js, err := jetstream.New(connection)
	if err != nil {
		return err
	}
	quiet := []string{
		"deploys",
		"payments",
		"signups",
		"backups",
		"latency",
		"disk",
		"certificates",
		"logins",
		"queue",
		"cron",
	}
	random := rand.New(rand.NewPCG(4, 2))
	begun, published := time.Now().Add(-58*time.Minute), 0
	for minute := 0; minute <= 58; minute += 2 {
		if err := s.moveClock(ctx, begun.Add(time.Duration(minute)*time.Minute)); err != nil {
			return err
		}
		var events []string
		for _, category := range quiet {
			if random.IntN(3) == 0 {
				events = append(events, category)
			}
		}
		switch {
		case minute >= 12 && minute <= 20:
			events = append(events, many("errors", 4+random.IntN(9))...)
		case minute >= 34 && minute <= 56:
			events = append(events, many("errors", random.IntN(5))...)
			events = append(events, many("payments", random.IntN(4))...)
		}
		for _, category := range events {
			published++
			if _, err := js.Publish(
				ctx,
				"notify."+category,
				[]byte(category+" has something to say"),
				jetstream.WithMsgID(fmt.Sprint("event-", published)),
			); err != nil {
				return err
			}
		}
		if err := s.until(ctx, func(status) bool { return s.settled.Load() == int64(published) }); err != nil {
			return err
		}
	}
	return s.moveClock(ctx, time.Now())
}

func many(category string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = category
	}
	return list
}

// moveClock sets the clock of Redis, and waits until all workers have seen it.
func (s *stack) moveClock(ctx context.Context, to time.Time) error {
	s.redis.SetTime(to)
	return s.until(ctx, func(now status) bool {
		seen := 0
		for _, replica := range now.Replicas {
			if replica.State == "ready" && !replica.Seen.Before(to.Truncate(time.Microsecond)) {
				seen++
			}
		}
		return seen == replicas
	})
}

// status is the part of /api/status that the program needs.
type status struct {
	Replicas []struct {
		State string
		Seen  time.Time
	}
}

func (s *stack) until(ctx context.Context, so func(status) bool) error {
	for {
		now, err := s.ask(ctx)
		if err == nil && so(now) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *stack) ask(ctx context.Context) (now status, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.pages[0]+"/api/status", nil)
	if err != nil {
		return now, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return now, err
	}
	defer func() { _ = response.Body.Close() }()
	return now, json.NewDecoder(response.Body).Decode(&now)
}
