package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"notifier/bench/internal/rig"
)

// benchmarks is the document with the generated tables.
const benchmarks = "docs/benchmarks.md"

// Targets of the worker. All but mostPeak are relative to the bare consumer of the same round.
const (
	mostCPU, mostCPUPlain = 2.0, 1.7
	leastThroughput       = 0.88
	mostPeak              = 64 << 20 // bytes
)

// round holds one drain by the bare consumer and one by the worker.
type round struct{ bare, worker drained }

// rounds holds the measurements of one form of events.
type rounds struct {
	form   form
	events int
	all    []round
}

// measure runs n rounds with events of one form and prints the tables.
func measure(ctx context.Context, f form, events, n int) (measured rounds, err error) {
	b := &bench{form: f, events: events}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := b.setUp(ctx); err != nil {
		return rounds{}, err
	}
	if measured, err = b.storms(ctx, n); err != nil {
		return rounds{}, err
	}
	fmt.Println(measured.table() + "\n" + targetTable(measured.targets()))
	return measured, nil
}

// storms runs n rounds. The bare consumer and the worker alternate in going first.
func (b *bench) storms(ctx context.Context, n int) (rounds, error) {
	measured := rounds{form: b.form, events: b.events}
	for i := range n {
		var r round
		bare := func() (err error) { r.bare, err = b.drainBare(ctx); return err }
		worker := func() (err error) { r.worker, err = b.drainWorker(ctx, fmt.Sprintf("storm-%d", i)); return err }
		order := []func() error{bare, worker}
		if i%2 == 1 {
			slices.Reverse(order)
		}
		for _, drain := range order {
			if err := drain(); err != nil {
				return rounds{}, fmt.Errorf("round %d: %w", i+1, err)
			}
		}
		measured.all = append(measured.all, r)
		fmt.Fprintf(
			os.Stderr,
			"%s, round %d: %.2f times the processor time, %.2f times the events a second\n",
			b.form,
			i+1,
			r.cpu(),
			r.throughput(),
		)
	}
	return measured, nil
}

func (r round) cpu() float64        { return float64(r.worker.cpu) / float64(r.bare.cpu) }
func (r round) throughput() float64 { return r.worker.perSecond / r.bare.perSecond }

// table returns the measurements in Markdown.
func (m rounds) table() string {
	each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(m.events) }
	var text strings.Builder
	fmt.Fprintf(&text, "%d events, %s, median of %d rounds and range:\n\n", m.events, m.form, len(m.all))
	text.WriteString("| | only acknowledging | notifier |\n| --- | --- | --- |\n")
	row := func(name, format string, of func(drained) float64) {
		bare := m.spread(format, func(r round) float64 { return of(r.bare) })
		worker := m.spread(format, func(r round) float64 { return of(r.worker) })
		fmt.Fprintf(&text, "| %s | %s | %s |\n", name, bare, worker)
	}
	row("events per second", "%.0f", func(d drained) float64 { return d.perSecond })
	row("processor time per event, µs", "%.1f", func(d drained) float64 { return each(d.cpu) })
	row("of NATS, µs", "%.1f", func(d drained) float64 { return each(d.nats) })
	row("of Redis, µs", "%.1f", func(d drained) float64 { return each(d.redis) })
	return text.String()
}

// targets returns the targets for storms of this form.
func (m rounds) targets() []target {
	cpu := target{
		name: "processor time per event of a storm, times that of a consumer that only acknowledges",
		most: true,
	}
	if m.form == formPlain {
		cpu.name = "processor time per event of a storm of plain text, times that of that consumer"
		return []target{cpu.met(each(m.all, round.cpu), mostCPUPlain, "%.2f")}
	}
	return []target{
		cpu.met(each(m.all, round.cpu), mostCPU, "%.2f"),
		target{name: "events per second of that storm, times those of that consumer"}.
			met(each(m.all, round.throughput), leastThroughput, "%.2f"),
		target{name: "the worker's peak memory in that storm, MiB", most: true}.
			met(each(m.all, func(r round) float64 { return mebibytes(r.worker.peak) }), mostPeak>>20, "%.0f"),
	}
}

// spread formats the median and range of a figure over all rounds.
func (m rounds) spread(format string, figure func(round) float64) string {
	return spread(format, each(m.all, figure))
}

// each returns one figure of every round.
func each[T any](rounds []T, figure func(T) float64) []float64 {
	values := make([]float64, len(rounds))
	for i, r := range rounds {
		values[i] = figure(r)
	}
	return values
}

// spread formats the median and range of values.
func spread(format string, values []float64) string {
	return fmt.Sprintf(
		format+" ("+format+" to "+format+")",
		median(values),
		slices.Min(values),
		slices.Max(values),
	)
}

func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// sentence returns the summary for the README.
func (m rounds) sentence() string {
	rates, cpu := each(m.all, func(r round) float64 { return r.worker.perSecond }), each(m.all, round.cpu)
	return fmt.Sprintf(
		"One worker drains %.0f,000 events a second, %s, at %.1f times the processor time of a consumer that only acknowledges.",
		median(rates)/1000,
		m.form,
		median(cpu),
	)
}

// measureAndWrite measures both forms, several workers, latency and the regression ratios. It updates the
// documents and the recorded ratios.
func measureAndWrite(ctx context.Context, events, n int) error {
	withIDs, err := measure(ctx, formJSON, events, n)
	if err != nil {
		return err
	}
	plain, err := measure(ctx, formPlain, events, n)
	if err != nil {
		return err
	}
	scale, err := measureScale(ctx, events, n)
	if err != nil {
		return err
	}
	latency, err := measureLatency(ctx)
	if err != nil {
		return err
	}
	regressions, err := measureRatios(ctx)
	if err != nil {
		return err
	}
	return errors.Join(
		regressions.record(),
		rig.Rewrite(benchmarks, "targets", "\n"+targetTable(
			slices.Concat(withIDs.targets(), plain.targets(), scale.targets(), latency.targets()))),
		rig.Rewrite(benchmarks, "storm", "\n"+withIDs.table()),
		rig.Rewrite(benchmarks, "scale", "\n"+scale.table()),
		rig.Rewrite(benchmarks, "latency", "\n"+latency.table()),
		rig.Rewrite("README.md", "storm", withIDs.sentence()))
}
