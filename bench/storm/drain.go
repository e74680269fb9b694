package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/bench/internal/rig"
)

// form is the payload format of the events.
type form string

const (
	formJSON  form = "JSON with ids"
	formPlain form = "plain text"
)

func (f form) payload(i int) []byte {
	const text = "disk full on db-1: "
	if f == formPlain {
		return []byte(text + strings.Repeat("x", textBytes-len(text)))
	}
	return fmt.Appendf(nil, `{"id":"storm-%d","text":"%s"}`, i, text+strings.Repeat("x", textBytes-len(text)))
}

// drained is the result of one drain. Its durations are processor times.
type drained struct {
	perSecond float64       // events
	cpu       time.Duration // of the consumer's process, including start and exit
	redis     time.Duration // from the start of the consumer's process to the end of the drain
	nats      time.Duration // likewise
	peak      int64         // memory of the consumer's process, in bytes
}

// fill recreates the stream and its consumer, then publishes b.events events.
func (b *bench) fill(ctx context.Context, stream, consumer, subject string) error {
	if err := b.create(ctx, stream, consumer, subject); err != nil {
		return err
	}
	for i := range b.events {
		subject := fmt.Sprintf("%s.category-%d", subject, i%categories)
		if _, err := b.JS.PublishAsync(
			subject,
			b.form.payload(i),
			jetstream.WithStallWait(runDeadline),
		); err != nil {
			return err
		}
	}
	return b.Published(ctx, runDeadline)
}

func (b *bench) drainBare(ctx context.Context) (drained, error) {
	if err := b.fill(ctx, "BARE", "bare", "bare"); err != nil {
		return drained{}, err
	}
	command, err := rig.Role(roleBare, natsURL+"="+b.NATSURL)
	if err != nil {
		return drained{}, err
	}
	return b.drain(ctx, command, "BARE", "bare")
}

// drainWorker drains a stream with one worker and checks the number of posts and of log lines for drops. The
// namespace must be new, so that no slots are taken yet.
func (b *bench) drainWorker(ctx context.Context, namespace string) (drained, error) {
	if err := b.fill(ctx, "NOTIFY", "notifier", "notify"); err != nil {
		return drained{}, err
	}
	log, err := os.Create(filepath.Join(b.Folder, namespace+".log"))
	if err != nil {
		return drained{}, err
	}
	defer func() { _ = log.Close() }()
	before := b.Slack.Accepted()
	result, err := b.drain(ctx, b.serve(namespace, log), "NOTIFY", "notifier")
	if err != nil {
		return drained{}, err
	}
	const sent = 100
	if got := b.Slack.Accepted() - before; got != sent {
		return drained{}, fmt.Errorf("%d messages sent, expected %d", got, sent)
	}
	lines, err := countLines(log.Name(), `"msg":"notification dropped"`)
	if err == nil && lines != b.events-sent {
		err = fmt.Errorf("%d lines for drops in the log, expected %d", lines, b.events-sent)
	}
	return result, err
}

// drain starts the consumer's process, times it from the first delivery to the last acknowledgement, and
// stops it.
func (b *bench) drain(ctx context.Context, command *exec.Cmd, stream, consumer string) (drained, error) {
	ctx, cancel := context.WithTimeout(ctx, runDeadline)
	defer cancel()
	nats, redis := b.Used()
	if err := command.Start(); err != nil {
		return drained{}, err
	}
	var started, ended time.Time
	for ended.IsZero() && ctx.Err() == nil {
		durable, err := b.JS.Consumer(ctx, stream, consumer)
		if err != nil {
			break
		}
		info := durable.CachedInfo()
		if started.IsZero() && info.Delivered.Stream > 0 {
			started = time.Now()
		}
		if info.NumPending == 0 && info.NumAckPending == 0 {
			ended = time.Now()
		}
		time.Sleep(pollEvery)
	}
	natsAfter, redisAfter := b.Used()
	_ = command.Process.Signal(syscall.SIGTERM) // Wait returns the exit status
	if err := command.Wait(); err != nil {
		return drained{}, err
	}
	if ended.IsZero() || started.IsZero() {
		return drained{}, fmt.Errorf("not drained within %s", runDeadline)
	}
	state := command.ProcessState
	result := drained{
		perSecond: float64(b.events) / ended.Sub(started).Seconds(),
		cpu:       state.UserTime() + state.SystemTime(), redis: redisAfter - redis, nats: natsAfter - nats,
	}
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		result.peak = usage.Maxrss << 10 // Linux counts in KiB
	}
	return result, nil
}

func countLines(path, with string) (int, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	count := 0
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		if strings.Contains(scanner.Text(), with) {
			count++
		}
	}
	return count, scanner.Err()
}
