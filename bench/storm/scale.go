package main

import (
	"context"
	"errors"
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

// formation is a number of workers, spread evenly over a number of streams. All workers share one namespace,
// and so the limits.
type formation struct{ workers, streams int }

var (
	alone      = formation{1, 1}
	three      = formation{3, 1}
	formations = []formation{alone, three, {8, 1}, {4, 2}}
)

const (
	mostCPUThree = 1.25                  // processor time of three workers, relative to one
	mostIdle     = 3 * time.Millisecond  // processor time of an idle worker per second
	mostStart    = 40 * time.Millisecond // processor time of a worker until its first pull request
	idleTime     = 10 * time.Second
	calmTime     = 2 * time.Second // until a worker is idle after its start or a storm
	longestPause = time.Hour       // of a consumer; it is resumed once all workers are ready
)

// together is the result of one storm drained by a formation. Its durations are processor times. Only a
// single worker has start and idle measured.
type together struct {
	perSecond float64       // events
	calls     int           // of scripts
	workers   time.Duration // of all workers, without start and exit
	redis     time.Duration
	nats      time.Duration
	start     time.Duration // until the first pull request
	idle      time.Duration // per second without events
}

// scaleRounds holds the results of each formation, one per round.
type scaleRounds struct {
	events int
	all    map[formation][]together
}

// measureScale runs n rounds and prints the medians. In each round every formation drains one storm.
func measureScale(ctx context.Context, events, n int) (measured scaleRounds, err error) {
	b := &bench{form: formJSON, events: events}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := b.setUp(ctx); err != nil {
		return scaleRounds{}, err
	}
	measured = scaleRounds{events: events, all: map[formation][]together{}}
	for i := range n {
		for _, f := range formations {
			result, err := b.drainTogether(ctx, f, fmt.Sprintf("scale-%d-%d-%d", i, f.workers, f.streams))
			if err != nil {
				return scaleRounds{}, fmt.Errorf("%d workers, %d streams: %w", f.workers, f.streams, err)
			}
			measured.all[f] = append(measured.all[f], result)
		}
		fmt.Fprintf(os.Stderr, "round %d: %.2f times the processor time with %d workers\n",
			i+1, measured.shared(i), three.workers)
	}
	fmt.Println(measured.table() + "\n" + targetTable(measured.targets()))
	return measured, nil
}

// shared returns the processor time of three workers in round i, relative to one worker.
func (m scaleRounds) shared(i int) float64 {
	return float64(m.all[three][i].workers) / float64(m.all[alone][i].workers)
}

// table returns the measurements in Markdown.
func (m scaleRounds) table() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d events, %s, median of %d rounds:\n\n", m.events, formJSON, len(m.all[alone]))
	text.WriteString("| workers | streams | events per second | events in a script call |" +
		" processor time per event, µs: workers | Redis | NATS |\n")
	text.WriteString("| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, f := range formations {
		of := func(figure func(together) float64) float64 { return median(each(m.all[f], figure)) }
		perEvent := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(m.events) }
		fmt.Fprintf(&text, "| %d | %d | %.0f | %.0f | %.1f | %.1f | %.1f |\n", f.workers, f.streams,
			of(func(t together) float64 { return t.perSecond }),
			float64(m.events)/of(func(t together) float64 { return float64(t.calls) }),
			of(func(t together) float64 { return perEvent(t.workers) }),
			of(func(t together) float64 { return perEvent(t.redis) }),
			of(func(t together) float64 { return perEvent(t.nats) }))
	}
	return text.String()
}

// targets returns the targets for several workers and for the start and idling of one.
func (m scaleRounds) targets() []target {
	ratios := make([]float64, len(m.all[alone]))
	for i := range ratios {
		ratios[i] = m.shared(i)
	}
	idle := each(m.all[alone], func(t together) float64 { return float64(t.idle.Microseconds()) / 1000 })
	start := each(m.all[alone], func(t together) float64 { return float64(t.start.Milliseconds()) })
	name := fmt.Sprintf("processor time per event of %d workers, times that of one", three.workers)
	return []target{
		target{name: name, most: true}.met(ratios, mostCPUThree, "%.2f"),
		target{name: "processor time of an idle worker, ms per second", most: true}.
			met(idle, float64(mostIdle.Milliseconds()), "%.1f"),
		target{name: "processor time of a worker's start, ms", most: true}.
			met(start, float64(mostStart.Milliseconds()), "%.0f"),
	}
}

// drainTogether splits the events evenly among the streams and drains them with the workers. The consumers
// are paused until all workers are ready, to keep the start of the processes out of the result.
func (b *bench) drainTogether(
	ctx context.Context,
	f formation,
	namespace string,
) (result together, err error) {
	part := *b
	part.events = b.events / f.streams
	streams := []string{"NOTIFY", "MORE"}[:f.streams]
	for _, stream := range streams {
		if err := part.fill(ctx, stream, "notifier", strings.ToLower(stream)); err != nil {
			return together{}, err
		}
		if _, err := b.JS.PauseConsumer(ctx, stream, "notifier", time.Now().Add(longestPause)); err != nil {
			return together{}, err
		}
	}
	sent := b.Slack.Accepted()
	running, err := b.startFleet(ctx, namespace, f.workers, streams)
	defer func() { err = errors.Join(err, running.stop()) }()
	if err != nil {
		return together{}, err
	}
	start := running.used()
	time.Sleep(calmTime)
	if result, err = b.timeTogether(ctx, running, streams); err != nil {
		return together{}, err
	}
	if sent = b.Slack.Accepted() - sent; sent != 100 {
		return together{}, fmt.Errorf("%d messages sent by all together, expected 100", sent)
	}
	if f == alone {
		result.start = start
		time.Sleep(calmTime)
		before := running.used()
		time.Sleep(idleTime)
		result.idle = time.Duration(float64(running.used()-before) / idleTime.Seconds() / float64(f.workers))
	}
	return result, nil
}

// timeTogether resumes the consumers and measures until the last event is acknowledged.
func (b *bench) timeTogether(ctx context.Context, running *fleet, streams []string) (together, error) {
	client, err := b.redisClient()
	if err != nil {
		return together{}, err
	}
	defer func() { _ = client.Close() }()
	calls, _, err := scriptStatistics(ctx, client)
	if err != nil {
		return together{}, err
	}
	workers, started := running.used(), time.Now()
	nats, redis := b.Used()
	for _, stream := range streams {
		if _, err := b.JS.ResumeConsumer(ctx, stream, "notifier"); err != nil {
			return together{}, err
		}
	}
	if err := b.until(
		ctx,
		streams,
		func(info *jetstream.ConsumerInfo) bool { return info.NumPending == 0 && info.NumAckPending == 0 },
	); err != nil {
		return together{}, err
	}
	took := time.Since(started)
	natsNow, redisNow := b.Used()
	workersNow := running.used()
	callsNow, _, err := scriptStatistics(ctx, client)
	return together{
		perSecond: float64(b.events) / took.Seconds(), calls: callsNow - calls,
		workers: workersNow - workers, redis: redisNow - redis, nats: natsNow - nats,
	}, err
}

// fleet is a set of running workers.
type fleet struct {
	workers []*exec.Cmd
	logs    []*os.File
}

// startFleet starts n workers, spread evenly over the streams, and waits until each has a pull request
// pending.
func (b *bench) startFleet(
	ctx context.Context,
	namespace string,
	n int,
	streams []string,
	settings ...string,
) (*fleet, error) {
	f := &fleet{}
	for i := range n {
		log, err := os.Create(filepath.Join(b.Folder, fmt.Sprintf("%s-%d.log", namespace, i)))
		if err != nil {
			return f, err
		}
		f.logs = append(f.logs, log)
		stream := streams[i%len(streams)]
		command := b.serve(
			namespace,
			log,
			append(settings, "NATS_STREAM="+stream, "NATS_SUBJECT="+strings.ToLower(stream)+".>")...)
		if err := command.Start(); err != nil {
			return f, err
		}
		f.workers = append(f.workers, command)
	}
	return f, b.until(
		ctx,
		streams,
		func(info *jetstream.ConsumerInfo) bool { return info.NumWaiting >= n/len(streams) },
	)
}

// stop shuts the workers down gracefully.
func (f *fleet) stop() error {
	var errs []error
	for _, worker := range f.workers {
		_ = worker.Process.Signal(syscall.SIGTERM) // Wait returns the exit status
	}
	for _, worker := range f.workers {
		errs = append(errs, worker.Wait())
	}
	for _, log := range f.logs {
		errs = append(errs, log.Close())
	}
	return errors.Join(errs...)
}

// used returns the processor time of all workers so far.
func (f *fleet) used() time.Duration {
	var sum time.Duration
	for _, worker := range f.workers {
		sum += rig.CPU(worker.Process.Pid)
	}
	return sum
}

// until waits until the workers' consumer on each stream satisfies is.
func (b *bench) until(ctx context.Context, streams []string, is func(*jetstream.ConsumerInfo) bool) error {
	ctx, cancel := context.WithTimeout(ctx, runDeadline)
	defer cancel()
	for ctx.Err() == nil {
		all := true
		for _, stream := range streams {
			consumer, err := b.JS.Consumer(ctx, stream, "notifier")
			if err != nil {
				return err
			}
			all = all && is(consumer.CachedInfo())
		}
		if all {
			return nil
		}
		time.Sleep(pollEvery)
	}
	return ctx.Err()
}
