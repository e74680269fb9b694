// Peers compares notifier with other ways to do its job, under the same storms.
//
//	cd bench/peers && go run . [-events 50000] [-rounds 3] [-only NAME] [-logs FOLDER] [-write]
//
// The separate module keeps the peers out of notifier's dependencies. Each peer runs as one process, notifier
// also as three. NATS and Redis run as separate processes, and a fake Slack limits each channel. Each peer
// goes through three trials:
//
//   - timed storms under the default limits; the first one runs until every admitted event is posted;
//   - bursts under limits with short windows, which roll during the trial;
//   - a storm in which one worker is killed with SIGKILL after the first posts, and started again.
//
// Messages and losses are counted from the logs and Slack's inbox, by the same code for all peers
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
	top      = "../.." // the repository's root
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

// compare measures the selected peers and prints the table. With write, it also updates docs/benchmarks.md.
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
	// Rounds spread other load on the host over all peers.
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
