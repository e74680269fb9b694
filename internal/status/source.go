package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/snapshot"
	"notifier/internal/status/config"
	"notifier/internal/status/report"
	"notifier/internal/steering"
)

// Limiter reads the limits; see ratelimit.Limiter.
type Limiter interface {
	Recent(ctx context.Context, max int) (categories []string, entries int, err error)
	Peek(ctx context.Context, categories ...string) ([]ratelimit.Usage, error)
	Pauses(ctx context.Context) ([]ratelimit.Pause, error)
	DryRun(ctx context.Context, category string, cost int) (ratelimit.Decision, error)
}

// Reports reads heartbeats and counts; see report.Reader.
type Reports interface {
	Read(ctx context.Context) (report.Report, error)
	Replicas(ctx context.Context) ([]report.Replica, error)
	RefusesWrites(ctx context.Context) error
}

// Steering reads mutes and temporary limits; see steering.Store.
type Steering interface {
	Read(ctx context.Context) (steering.State, error)
}

// Source reads a State. All fields but This are required. It is safe for concurrent use if its parts are.
type Source struct {
	Reports  Reports
	Steering Steering
	Own      config.Deciding // settings of the reader, used if no worker shows its own

	// LimiterFor returns a limiter that reads with these rules, the temporary limits in place of some.
	LimiterFor func(rules ratelimit.Rules, dedupe time.Duration, temporary ratelimit.Temporary) (Limiter, error)

	// This returns the snapshot of the worker that reads. Nil in a command.
	This func() snapshot.Snapshot
}

// reading is one reading of Redis.
type reading struct {
	view     view
	deciding config.Deciding // without the temporary limits
	limiter  Limiter         // with the temporary limits. Nil if Redis did not reply
	orders   []steering.Order
	ends     ratelimit.Ends // of the temporary limits
	more     int            // workers beyond the reader's bound
	skipped  int            // as report.Report.Skipped
}

// Read reads the state of all workers. It never fails: a failed read is reported as the condition redis, and
// what it should have returned stays empty. See State.Unreadable.
func (s Source) Read(ctx context.Context) State {
	r := s.read(ctx)
	limits, omitted, err := r.limits(ctx)
	r.note(err)
	findings := r.view.findings() // after all reads: a failed one is a finding
	state := State{
		Time: r.view.now, State: OK, Summary: r.view.summary(findings, limits, r.deciding.Rules.Reserved()),
		Conditions: []Condition{}, Limits: limits, Replicas: []Replica{}, Overrides: []Override{},
		Omitted: Omitted{Limits: omitted, Minutes: r.skipped * int(report.TallyLength/time.Minute), Events: r.view.unnamed()},
	}
	state.refusesWrites = r.view.refuses != nil
	if r.view.blind {
		state.unreadable = r.view.readErr
	}
	if len(findings) > 0 {
		state.State = findings[0].state
	}
	state.Omitted.Conditions = max(0, len(findings)-maxConditions)
	for _, f := range findings[:min(len(findings), maxConditions)] {
		state.Conditions = append(state.Conditions, f.condition())
	}
	state.Omitted.Replicas = r.more + max(0, len(r.view.replicas)-maxReplicas)
	for _, replica := range newestFirst(r.view.replicas)[:min(len(r.view.replicas), maxReplicas)] {
		state.Replicas = append(state.Replicas, replicaRow(replica))
	}
	slices.SortStableFunc(r.orders, func(a, b steering.Order) int { return b.Since.Compare(a.Since) })
	state.Omitted.Overrides = max(0, len(r.orders)-maxOverrides)
	for _, order := range r.orders[:min(len(r.orders), maxOverrides)] {
		state.Overrides = append(state.Overrides, overrideOf(order))
	}
	return state
}

func (f finding) condition() Condition { return Condition{f.kind, f.state, f.since, f.message} }

// Running returns the different settings of the running workers, the newest worker's first. It returns the
// reader's own if no worker shows readable settings. The error means that Redis is unavailable.
func (s Source) Running(ctx context.Context) ([]config.Deciding, error) {
	replicas, err := s.Reports.Replicas(ctx)
	if err != nil {
		return nil, err
	}
	var all []config.Deciding
	known := map[string]bool{}
	for _, replica := range newestFirst(replicas) {
		settings := replica.Snapshot.Settings
		if replica.Silent || settings.Text == nil || known[settings.Hash] {
			continue
		}
		known[settings.Hash] = true
		if deciding, err := config.Parse(settings.Text); err == nil {
			all = append(all, deciding)
		}
	}
	if len(all) == 0 {
		all = append(all, s.Own)
	}
	return all, nil
}

// read reads everything but the limits.
func (s Source) read(ctx context.Context) reading {
	r := reading{deciding: s.Own}
	read, err := s.Reports.Read(ctx)
	if err != nil {
		r.note(err)
		r.view.blind, r.view.now = true, time.Now().UTC()
		r.view.replicas = s.withOwn(nil, r.view.now)
		return r
	}
	r.view.now, r.view.counts, r.more, r.skipped = read.Now, read.Counts, read.More, read.Skipped
	r.view.replicas = s.withOwn(read.Replicas, read.Now)
	r.view.refuses = s.Reports.RefusesWrites(ctx)
	state, err := s.Steering.Read(ctx)
	r.note(err)
	r.orders = state.InForce(read.Now, steering.Mute, steering.Limit)
	s.choose(&r)
	if r.limiter != nil {
		r.view.pauses, err = r.limiter.Pauses(ctx)
		r.note(err)
	}
	return r
}

// note keeps the first error of a read. Later reads still happen: one damaged key must not hide the rest.
func (r *reading) note(err error) {
	if r.view.readErr == nil {
		r.view.readErr = err
	}
}

// withOwn replaces the heartbeat of the reading worker by its own snapshot.
func (s Source) withOwn(replicas []report.Replica, now time.Time) []report.Replica {
	if s.This == nil {
		return replicas
	}
	own := report.Replica{Snapshot: s.This().At(now), Seen: now}
	others := slices.DeleteFunc(slices.Clone(replicas), func(r report.Replica) bool {
		return r.Snapshot.ID == own.Snapshot.ID
	})
	return append(others, own)
}

// choose takes the settings of the newest worker, ready ones before others, and makes a limiter that reads
// with them and with the temporary limits.
func (s Source) choose(r *reading) {
	temporary := steering.Temporary(r.orders)
	r.ends = temporary.Ends
	replicas := newestFirst(r.view.replicas)
	slices.SortStableFunc(replicas, func(a, b report.Replica) int {
		return cmp.Compare(unfitness(a), unfitness(b))
	})
	if len(replicas) > 0 {
		var err error
		r.deciding, r.limiter, err = s.settingsOf(replicas[0].Snapshot.Settings, temporary)
		if err == nil {
			r.view.channels = channelsOf(r.deciding)
			return
		}
		r.view.unusable = fmt.Errorf("the limits of %s are unknown, so this reader's own are shown: %w",
			short(replicas[0].Snapshot.ID), err)
	}
	var err error
	r.deciding = s.Own
	r.limiter, err = s.LimiterFor(s.Own.Rules, s.Own.Dedupe, temporary)
	r.note(err)
}

func (s Source) settingsOf(
	settings snapshot.Settings, temporary ratelimit.Temporary,
) (config.Deciding, Limiter, error) {
	if settings.Text == nil {
		return config.Deciding{}, nil, errors.New("its settings are too long for its heartbeat")
	}
	deciding, err := config.Parse(settings.Text)
	if err != nil {
		return config.Deciding{}, nil, err
	}
	limiter, err := s.LimiterFor(deciding.Rules, deciding.Dedupe, temporary)
	return deciding, limiter, err
}

// unfitness orders workers by how well their settings describe the present.
func unfitness(r report.Replica) int {
	switch {
	case r.Silent:
		return 2
	case !r.Snapshot.Ready:
		return 1
	}
	return 0
}

func newestFirst(replicas []report.Replica) []report.Replica {
	return slices.SortedFunc(slices.Values(replicas), func(a, b report.Replica) int {
		return cmp.Or(b.Snapshot.Started.Compare(a.Snapshot.Started), cmp.Compare(a.Snapshot.ID, b.Snapshot.ID))
	})
}

func replicaRow(r report.Replica) Replica {
	row := Replica{
		ID: short(r.Snapshot.ID), State: waiting, Held: r.Snapshot.Held, Version: short(r.Snapshot.Version),
		Settings: short(r.Snapshot.Settings.Hash), Seen: r.Seen,
	}
	switch {
	case r.Silent:
		row.State = silent
	case r.Snapshot.Ready:
		row.State = ready
	}
	return row
}

func overrideOf(o steering.Order) Override {
	return Override{
		Kind: string(o.Kind), Name: o.Target, Limit: o.Limit, Until: o.Until, By: o.By, Reason: o.Reason,
	}
}

// webhook names the only channel of a webhook in snapshots and pauses.
const webhook = "webhook"

// channelsOf lists the channels that events can go to.
func channelsOf(d config.Deciding) []string {
	channels := []string{cmp.Or(d.Channel, webhook)}
	for _, channel := range d.Routes.All() {
		channels = append(channels, channel)
	}
	return channels
}

func (r reading) channelOf(category string) string {
	return cmp.Or(r.deciding.ChannelOf(category), webhook)
}
