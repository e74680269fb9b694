// Peers runs the same storm through other ways to do notifier's job, and through notifier, and counts what
// became of it.
//
//	cd bench/peers && go run . [-events 50000] [-rounds 3] [-only NAME] [-logs FOLDER] [-write]
//
// It is a module of its own, so that no peer becomes a dependency of notifier. Each peer is a process
// (notifier also three), beside a NATS server and a Redis server in processes of their own and a fake Slack
// that limits each channel. There are three tests of each:
//
//   - storms under the default limits, timed; the first is waited for until all is posted;
//   - bursts under limits with short windows, which roll while they arrive;
//   - a storm in which the worker, or one of three, is killed with SIGKILL after the first posts, and started again.
//
// What is counted follows from the logs and from Slack's inbox alone, with the same code for all
// (account.go).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"notifier/bench/internal/rig"
)

const (
	top      = "../.." // of the repository
	deadline = 20 * time.Minute
)

func main() {
	events := flag.Int("events", 50_000, "events of each storm")
	rounds := flag.Int("rounds", 3, "timed storms of each; the medians count")
	only := flag.String("only", "", "only those whose names contain this")
	write := flag.Bool("write", false, "write the table in docs/benchmarks.md")
	logs := flag.String("logs", "", "keep the logs in this folder, which must exist")
	role := flag.String("role", "", "for this program's own use")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *role == rig.RoleNATS {
		err = rig.ServeNATS(ctx)
	} else {
		err = compare(ctx, &bench{events: *events, logs: *logs}, *rounds, *only, *write)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// compare measures all peers, prints the table, and writes it if asked to.
func compare(ctx context.Context, b *bench, rounds int, only string, write bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := b.setUp(ctx); err != nil {
		return err
	}
	var results []*result
	for _, p := range peers() {
		if strings.Contains(p.name, only) {
			results = append(results, &result{peer: p})
		}
	}
	// Rounds, and not one peer after the other: what else the host does meets all of them.
	for round := range rounds {
		for _, r := range results {
			if err := b.storm(ctx, r, round == 0); err != nil {
				return fmt.Errorf("%s, storm %d: %w", r.peer.name, round+1, err)
			}
		}
	}
	for _, r := range results {
		if err := b.bursts(ctx, r); err != nil {
			return fmt.Errorf("%s, bursts: %w", r.peer.name, err)
		}
		if err := b.kill(ctx, r); err != nil {
			return fmt.Errorf("%s, kill: %w", r.peer.name, err)
		}
	}
	text := table(results, b.events, rounds)
	fmt.Println(text)
	if !write {
		return nil
	}
	return rig.Rewrite(filepath.Join(top, "docs", "benchmarks.md"), "peers", "\n"+text)
}
