// Package preflight checks whether a worker with given settings could do its job, before it is started. It is
// the work of "notifier check".
//
// The checks look at the settings and at the three neighbours: NATS, Redis and Slack. Each check finds faults
// that users meet: a wrong address, a stream that loses events, a token without a scope. A check returns
// rows, which name the fault and the remedy. Rows that only tune a working deployment do not belong here.
//
// A check changes nothing and publishes nothing, so it can run beside workers at any time. Where a fault
// shows only by writing, the state is "skip" and the message says so.
//
// All neighbours are checked at the same time, and the checks of one neighbour in order. If it cannot be
// reached or stops replying, the check in progress fails and the rest of its checks are skipped.
package preflight

import (
	"context"
	"fmt"
	"slices"
	"time"

	"notifier/internal/settings"
	"notifier/internal/status/report"
	"notifier/internal/term"
)

const (
	// Timeout bounds one check.
	Timeout = 5 * time.Second
	// Deadline bounds Run.
	Deadline = 2 * Timeout

	maxMessage = 1000 // bytes; a false server can reply with anything
)

// State rates a row.
type State string

// States of a row.
const (
	OK   State = "ok"
	Warn State = "warn" // a worker runs, but may lose or delay events, or is exposed
	Fail State = "fail" // a worker could not do its job
	Skip State = "skip" // unknown
)

// Row is one result of a check.
type Row struct {
	Name    string // settings, nats, stream/NOTIFY, redis/eviction and so on
	State   State
	Message string // printable, one line, without secrets

	stop bool // the neighbour is unusable; the rest of its checks is skipped
}

// Config is the input of Run.
type Config struct {
	Settings settings.Settings
	Hash     string  // of Settings, as workers report it
	Replicas Reports // may be nil; then running workers are not compared
}

// Reports reads the heartbeats of the workers. A *report.Reader is one.
type Reports interface {
	Replicas(ctx context.Context) ([]report.Replica, error)
}

// check is one check. Its rows need no name.
type check struct {
	name string
	run  func(ctx context.Context) []Row
}

// group is a list of checks that depend on one neighbour.
type group struct {
	checks []check
	end    func() // may be nil
}

// Run runs all checks and returns their rows in a fixed order. It takes at most Deadline, and ends early if
// ctx is done.
func Run(ctx context.Context, c Config) []Row {
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	groups := []group{settingsGroup(c.Settings), natsGroup(c.Settings), redisGroup(c), slackGroup(c.Settings)}
	results := make([]<-chan []Row, len(groups))
	for i, g := range groups {
		results[i] = g.start(ctx)
	}
	var rows []Row
	for i, g := range groups {
		rows = append(rows, g.collect(ctx, results[i])...)
	}
	return rows
}

// start runs the checks one by one, up to the first that finds the neighbour unusable. The channel has room
// for all results, so a check that outlives Run can end.
func (g group) start(ctx context.Context) <-chan []Row {
	results := make(chan []Row, len(g.checks))
	go func() {
		if g.end != nil {
			defer g.end()
		}
		for _, c := range g.checks {
			ctx, cancel := context.WithTimeout(ctx, Timeout)
			rows := c.run(ctx)
			cancel()
			results <- rows
			if unusable(rows) {
				return
			}
		}
	}()
	return results
}

// collect waits for the results, names their rows and adds rows for the checks that did not run.
func (g group) collect(ctx context.Context, results <-chan []Row) (all []Row) {
	failed := ""
	for _, c := range g.checks {
		rows := one(Skip, "not checked, because %s failed", failed)
		if failed == "" {
			select {
			case rows = <-results:
			case <-ctx.Done():
				rows = stop("no reply within %s", Deadline)
			}
		}
		if unusable(rows) {
			failed = c.name
		}
		for _, row := range rows {
			message := term.Printable(row.Message[:min(len(row.Message), maxMessage)])
			all = append(all, Row{Name: term.Printable(c.name), State: row.State, Message: message})
		}
	}
	return all
}

func unusable(rows []Row) bool {
	return slices.ContainsFunc(rows, func(r Row) bool { return r.stop })
}

// one returns a single row.
func one(state State, format string, arguments ...any) []Row {
	return []Row{{State: state, Message: fmt.Sprintf(format, arguments...)}}
}

// stop returns a failure that skips the rest of the neighbour's checks.
func stop(format string, arguments ...any) []Row {
	return []Row{{State: Fail, Message: fmt.Sprintf(format, arguments...), stop: true}}
}

// advised returns a message that ends with the advice, if there is any.
func advised(message any, advice string) string {
	if advice == "" {
		return fmt.Sprint(message)
	}
	return fmt.Sprintf("%v; %s", message, advice)
}
