package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/urfave/cli/v3"
	"go.uber.org/zap"

	"notifier/internal/app"
	"notifier/internal/consume/result"
	"notifier/internal/devstack/https"
	"notifier/internal/outcome"
	"notifier/internal/settings"
	"notifier/internal/term"
)

// The burst of the demo: more than both limits allow.
const (
	demoWorkers = 3
	demoEach    = 12 // events of each category
	demoAtOnce  = 8  // categories published one after the other; the rest are interleaved

	demoDeadline = time.Minute // for a machine with much else to do
)

// demoCategories resemble the categories of a team's services.
var demoCategories = [...]string{
	"errors", "deploys", "payments", "signups", "backups", "latency", "disk", "certificates", "logins", "queue",
	"search", "mail", "cache", "billing", "exports", "imports", "webhooks", "cron", "dns", "feedback",
}

func demoCommand() *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "watch the limits hold: a burst of events, three workers, all in this process",
		Description: `Starts NATS, Redis, a fake Slack and three workers, publishes 240 events (20 categories, 12 each) under the
default limits, and shows what was sent, what was dropped, and why. Takes a few seconds.

Example:
   notifier-dev demo`,
		Flags: httpsFlags(),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			secure, err := slackTLS(cmd, ephemeralAddr)
			if err != nil {
				return err
			}
			return runDemo(ctx, cmd.Root().Writer, secure)
		},
	}
}

// runDemo writes its progress, and the sent and dropped counts, to out.
func runDemo(ctx context.Context, out io.Writer, secure *https.Server) (err error) {
	ctx, cancel := context.WithTimeoutCause(
		ctx,
		demoDeadline,
		fmt.Errorf("the demo did not finish within %s", demoDeadline),
	)
	defer cancel()
	report := func(format string, arguments ...any) { _, _ = fmt.Fprintf(out, format+"\n", arguments...) }

	servers, err := startServers(ephemeralAddr, ephemeralAddr, ephemeralAddr, secure)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.close()) }()
	report("NATS, Redis and a fake Slack are running, all in this process.")

	texts := servers.settings()
	texts["ADMIN_ADDR"], texts["SLACK_PACE"] = "", "off" // at Slack's pace it would take minutes
	app.SilenceLibraries()
	workers := make([]settings.Settings, demoWorkers)
	for i := range workers {
		if workers[i], err = settings.From(texts); err != nil {
			return err
		}
		servers.trust(&workers[i])
	}
	limits := workers[0].Store.Limits
	report(
		"%d workers share the limits: %s overall and %s per category.",
		demoWorkers,
		limits.Global,
		limits.Category,
	)
	report(
		"They post as fast as they can (SLACK_PACE=off); a worker for Slack posts 10 messages in 10 s to a channel.",
	)
	counts := newDemoCounts()
	ctx, stopWorkers := startDemoWorkers(ctx, workers, counts.observe)
	defer stopWorkers()

	started := time.Now()
	total := len(demoCategories) * demoEach
	if err := publishBurst(ctx, servers.nats.URL(), workers[0].NATS.Stream); err != nil {
		return interruption(ctx, err)
	}
	report("%d events were published: %d categories, %d each.", total, len(demoCategories), demoEach)
	reported := func(settled int) { report("  %3d of %d settled", settled, total) }
	if err := counts.wait(ctx, total, reported); err != nil {
		return interruption(ctx, err)
	}
	took := time.Since(started)
	stopWorkers()
	if err := counts.table(out); err != nil {
		return err
	}
	received := servers.slack.Accepted()
	report(
		"\nThe fake Slack received %d messages; the log of a worker gives the reason for each of the other %d. It took %.1f s.",
		received,
		total-received,
		took.Seconds(),
	)
	report(
		"Next: \"notifier-dev dev\" keeps all of this running, with an inbox page and a status page to watch.",
	)
	return counts.check(received)
}

// startDemoWorkers runs a worker for each of the settings. The context ends with the first worker that fails;
// stop ends the workers and waits for them.
func startDemoWorkers(
	ctx context.Context,
	all []settings.Settings,
	observe func(result.Result),
) (_ context.Context, stop func()) {
	ctx, fail := context.WithCancelCause(ctx)
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	var workers sync.WaitGroup
	for _, s := range all {
		workers.Go(func() {
			if err := app.Run(work, s, zap.NewNop(), observe); err != nil {
				fail(err)
			}
		})
	}
	return ctx, func() {
		end()
		workers.Wait()
		fail(nil)
	}
}

// publishBurst waits for the stream that the workers create, and publishes.
func publishBurst(ctx context.Context, url, stream string) error {
	connection, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer connection.Close()
	js, err := jetstream.New(connection)
	if err != nil {
		return err
	}
	for {
		if _, err = js.Stream(ctx, stream); err == nil {
			break
		}
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for _, category := range demoOrder() {
		text := "something happened in " + category
		if _, err := js.Publish(ctx, "notify."+category, []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// demoOrder is the burst: first some categories one after the other, which run into their own limit, then the
// others mixed, which run into the global one.
func demoOrder() []string {
	var order []string
	for _, category := range demoCategories[:demoAtOnce] {
		for range demoEach {
			order = append(order, category)
		}
	}
	for range demoEach {
		order = append(order, demoCategories[demoAtOnce:]...)
	}
	return order
}

// demoCounts counts outcomes by category.
type demoCounts struct {
	mu         sync.Mutex
	settled    int
	byCategory map[string]*demoCount
	more       chan struct{} // has a token after each settled event
}

type demoCount struct{ sent, global, category, other int }

func newDemoCounts() *demoCounts {
	c := &demoCounts{byCategory: map[string]*demoCount{}, more: make(chan struct{}, 1)}
	for _, category := range demoCategories {
		c.byCategory[category] = &demoCount{}
	}
	return c
}

func (c *demoCounts) observe(s result.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	count := c.byCategory[s.Event.Category]
	switch {
	case s.Outcome == outcome.Sent:
		count.sent++
	case s.Reason == outcome.Global:
		count.global++
	case s.Reason == outcome.Category:
		count.category++
	default:
		count.other++
	}
	c.settled++
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// wait blocks until total events are settled, and reports progress periodically.
func (c *demoCounts) wait(ctx context.Context, total int, progress func(settled int)) error {
	ticker := time.NewTicker(300 * time.Millisecond)
	defer ticker.Stop()
	for {
		c.mu.Lock()
		settled := c.settled
		c.mu.Unlock()
		if settled >= total {
			progress(settled)
			return nil
		}
		select {
		case <-c.more:
		case <-ticker.C:
			progress(settled)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *demoCounts) table(out io.Writer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	table := term.NewNumberTable(out)
	table.Row("category", "sent", "dropped: global limit", "dropped: category limit")
	var sum demoCount
	for _, category := range demoCategories {
		count := c.byCategory[category]
		table.Row(category, count.sent, count.global, count.category)
		sum.sent += count.sent
		sum.global += count.global
		sum.category += count.category
	}
	table.Row("all", sum.sent, sum.global, sum.category)
	return table.Flush()
}

// check returns an error if the counts contradict the limits of the demo.
func (c *demoCounts) check(received int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	const limitGlobal, limitCategory = 100, 10
	sent := 0
	for category, count := range c.byCategory {
		sent += count.sent
		if count.sent > limitCategory || count.other > 0 {
			return fmt.Errorf(
				"%s: %d sent and %d neither sent nor dropped by a limit; expected at most %d and none",
				category,
				count.sent,
				count.other,
				limitCategory,
			)
		}
	}
	if sent != limitGlobal || received != limitGlobal {
		return fmt.Errorf("%d sent and %d received; expected %d", sent, received, limitGlobal)
	}
	return nil
}
