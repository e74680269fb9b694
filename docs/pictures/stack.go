package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
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
	pages   []string // where the workers' pages are
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

// startWorker starts a worker and gives where its page is.
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
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var line struct{ Msg, Addr string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "admin server listens" {
			go func() { _, _ = io.Copy(io.Discard, out) }() // else the worker waits for a reader; ends with the worker
			return "http://" + line.Addr, nil
		}
	}
	return "", errors.New("a worker has ended before it listened")
}

func (s *stack) close() {
	for _, worker := range s.workers {
		_ = worker.Process.Signal(syscall.SIGTERM)
		_ = worker.Wait() // it was asked to end
	}
	s.redis.Close()
	if s.slack != nil {
		_ = s.slack.Close()
	}
	if s.nats != nil {
		_ = s.nats.Close()
	}
}

// hour publishes what services of a team might in an hour: something now and then, and errors that come in
// storms.
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
		if err := s.settled(ctx, published); err != nil {
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
			if replica.Ready && !replica.Seen.Before(to.Truncate(time.Microsecond)) {
				seen++
			}
		}
		return seen == replicas
	})
}

// settled waits until so many events are counted.
func (s *stack) settled(ctx context.Context, want int) error {
	return s.until(ctx, func(now status) bool {
		n := 0
		for _, outcome := range now.Outcomes {
			n += outcome.N
		}
		return n == want
	})
}

// status is what is needed of /api/status.
type status struct {
	Replicas []struct {
		Ready bool
		Seen  time.Time
	}
	Outcomes []struct{ N int } `json:"outcomes_last_hour"`
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
