// Storm measures the cost of an error storm. One worker drains a stream of events, nearly all refused by its
// limits, and logs a line for each. A bare consumer that only acknowledges is the baseline.
//
//	go run ./bench/storm [-events 200000] [-rounds 5] [-plain] [-write]
//	go run ./bench/storm -scale | -latency | -backlog | -regressions
//
// The NATS server, the Redis server, the worker and the bare consumer are separate processes. The worker is
// the released build and logs to a file. In each round the worker and the bare consumer each drain a fresh
// stream of events in 20 categories; they alternate in going first. Events are JSON objects with an id and a
// text of 100 bytes, or with -plain the text alone. The limits are the defaults.
//
// Drains are timed from outside, from the first delivery to the last acknowledgement as the server counts
// them. Processor times come from the kernel. They cover the whole life of the worker and of the bare
// consumer; for the servers they cover the time from the start of that process to the end of the drain.
//
// With -scale several workers drain a storm together, from one stream and from two (scale.go). -latency
// measures single events (latency.go), -backlog the worker's memory (backlog.go), and -regressions compares
// with recorded ratios (regress.go). -write measures everything except the backlogs and updates the tables in
// docs/benchmarks.md, the sentence in README.md and the recorded ratios.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"notifier/bench/internal/rig"
)

// The program starts itself in these roles.
const (
	roleNATS = rig.RoleNATS // a NATS server; prints its URL
	roleBare = "bare"       // a consumer that only acknowledges
	roleLoop = "loop"       // a consumer that makes an HTTP request for each event
)

const (
	textBytes   = 100
	categories  = 20
	natsURL     = "STORM_NATS_URL" // environment variable for roleBare
	runDeadline = 2 * time.Minute  // for one drain
	pollEvery   = 2 * time.Millisecond
	// bareInFlight is the maximum number of messages that a worker holds.
	bareInFlight = 2048
)

func main() {
	events := flag.Int("events", 200_000, "events of each drain")
	rounds := flag.Int("rounds", 5, "rounds; the medians count")
	plain := flag.Bool("plain", false, "plain text without ids instead of JSON with them")
	write := flag.Bool(
		"write",
		false,
		"measure storms of both forms, several workers and latency, and write the tables in docs and README.md",
	)
	regressions := flag.Bool(
		"regressions",
		false,
		"print what a worker and the script take, relative to the least that can be, beside the recorded ratios",
	)
	latency := flag.Bool("latency", false, "measure how long a single event takes")
	backlog := flag.Bool("backlog", false, "measure the memory that backlogs of large messages take")
	scale := flag.Bool("scale", false, "measure several workers together, on one stream and on two")
	role := flag.String("role", "", "for this program's own use")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case *role == roleNATS:
		err = rig.ServeNATS(ctx)
	case *role == roleBare:
		err = drainBare(ctx)
	case *role == roleLoop:
		err = serveLoop(ctx)
	case *regressions:
		err = reportRegressions(ctx)
	case *latency:
		_, err = measureLatency(ctx)
	case *backlog:
		err = measureBacklogs(ctx)
	case *scale:
		_, err = measureScale(ctx, *events, *rounds)
	case *write:
		err = measureAndWrite(ctx, *events, *rounds)
	default:
		form := formJSON
		if *plain {
			form = formPlain
		}
		_, err = measure(ctx, form, *events, *rounds)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "storm:", err)
		os.Exit(1)
	}
}
