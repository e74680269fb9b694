// Storm measures what an error storm costs: one worker drains a stream of events that its limits refuse, a
// log line for each, beside a consumer that does nothing but acknowledge.
//
//	go run ./bench/storm [-events 200000] [-rounds 5] [-plain] [-write]
//	go run ./bench/storm -scale | -latency | -backlog | -regressions
//
// The NATS server, the Redis server, the worker (the released build, its log written to a file) and the bare
// consumer are processes of their own. Each round fills a stream with events of 20 categories, has one of the
// two drain it, fills it again and has the other one drain that; who comes first changes from round to round.
// The events are JSON objects with an id and a text of 100 bytes, or with -plain such texts alone, without
// ids. The limits are the default ones. Both are timed from outside, from the first delivery to the last
// acknowledgement as the server counts them. The processor time is that of each process, as the kernel counts
// it: of worker and consumer all of their lives, of the servers in that time.
//
// With -scale several workers drain a storm together, from one stream and from two (scale.go), -latency
// measures single events (latency.go), -backlog the worker's memory (backlog.go), and -regressions reports
// what has become slower (regress.go). With -write the tables in docs and the sentence in README.md are
// written, for which all but the backlogs is measured.
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

// The roles that this program takes in processes of its own.
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
	// bareInFlight is as many messages as the worker holds at most.
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
