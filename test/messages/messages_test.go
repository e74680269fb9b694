package messages

import (
	"maps"
	"slices"
	"testing"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// trial is an outage of Slack under one set of limits.
type trial struct {
	name             string
	global, category string
	outage           outage
	duration         time.Duration
}

// A worker tries Slack again after 0.5, 1, 2 and 4 seconds, give or take 30 %. The shortest outages end
// before the second try, so most of their events are posted while their admissions count.
var trials = []trial{
	{"one tier, shorter than the window", "20/3s", "12/3s", refusing, time.Second},
	{"one tier, longer than the window", "20/3s", "12/3s", failing, 4500 * time.Millisecond},
	{"two tiers, shorter than the windows", "8/1500ms+16/4s", "5/1500ms+9/4s", failing, time.Second},
	{"two tiers, between the windows", "8/1500ms+16/4s", "5/1500ms+9/4s", refusing, 2500 * time.Millisecond},
	{"two tiers, longer than the windows", "8/1500ms+16/4s", "5/1500ms+9/4s", failing, 5 * time.Second},
}

// TestNoWindowHoldsMoreMessagesThanItsLimit compares every window of the global limit and of each category's
// limit, in every tier, with the messages that the fake Slack accepted, and allows no tolerance.
func TestNoWindowHoldsMoreMessagesThanItsLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, trial := range trials {
		t.Run(trial.name, func(t *testing.T) {
			t.Parallel()
			trial.run(t)
		})
	}
}

func (tr trial) run(t *testing.T) {
	d := newDeployment(t, tr.global, tr.category)
	rules := kit.Rules(tr.global, tr.category, "")
	d.publish(1, 0)
	kit.Eventually(t, "Slack has the first message", func() bool { return d.slack().Accepted() == 1 })

	tr.outage.begin(d)
	down := time.Now()
	d.publish(40, storm)
	held := d.killHolder()
	killed := time.Now()
	d.publishUntil(down.Add(tr.duration / 2))
	d.startWorker()
	d.publishUntil(down.Add(tr.duration))
	waiting := 0
	for _, w := range d.workers {
		waiting += d.holding(w)
	}
	up := time.Now()
	tr.outage.end(d)

	kit.EventuallyNil(t, func() error {
		d.publish(5, steady)
		return d.recovered()
	})
	recovered := time.Now()
	longest := slices.MaxFunc(rules.Global, func(a, b ratelimit.Tier) int { return int(a.Window - b.Window) })
	d.publishUntil(recovered.Add(2 * longest.Window))
	kit.EventuallyNil(t, d.settled)

	t.Logf("down for %s; killed after %s with %d events; %d events waited at the end; all post again %s later",
		up.Sub(down).Round(time.Millisecond), killed.Sub(down).Round(time.Millisecond), held, waiting,
		recovered.Sub(up).Round(time.Millisecond))
	if waiting == 0 {
		t.Error("no event waited at the end of the outage")
	}
	d.judgeCourse(killed, held, up)
	d.judgeWindows(rules)
}

// judgeCourse fails the test if it proves nothing: both limits have to refuse events, all events of the
// killed worker have to be redelivered, and messages have to be posted after the outage.
func (d *deployment) judgeCourse(killed time.Time, held int, up time.Time) {
	d.Helper()
	after, waited, posts := 0, 0, map[string]int{}
	for _, m := range d.messages() {
		posts[m.Text]++
		if m.Time.After(up) {
			after++
			if d.events[m.Text].published.Before(up) {
				waited++
			}
		}
	}
	dropped, redelivered, ambiguous := map[string]int{}, map[string]bool{}, map[string]bool{}
	for _, w := range append(d.killed, d.workers...) {
		lines, err := w.Lines()
		kit.Check(d.T, err)
		for _, l := range lines {
			if l.Outcome == outcome.Dropped {
				dropped[l.Reason]++
			}
			if l.Redelivered && l.IsOutcome() && d.events[l.EventID].published.Before(killed) {
				redelivered[l.EventID] = true
			}
			if l.Ambiguous {
				ambiguous[l.EventID] = true
			}
		}
	}
	d.Logf("%d events; dropped %v; %d posted after the outage, %d of them published before its end; "+
		"%d ambiguous", len(d.events), dropped, after, waited, len(ambiguous))
	if after == 0 || dropped[outcome.Global] == 0 || dropped[outcome.Category] == 0 {
		d.Error("expected some events dropped by each limit, and some posted after the outage")
	}
	if len(redelivered) < held {
		d.Errorf("%d events from before the kill were redelivered, expected the %d that the killed worker held",
			len(redelivered), held)
	}
	for id, n := range posts {
		if n > 1 && !ambiguous[id] {
			d.Errorf("%s is in the channel %d times, and its line does not say ambiguous", id, n)
		}
	}
}

// judgeWindows compares every window of every scope with its limit. The global limit has to be used up.
func (d *deployment) judgeWindows(rules ratelimit.Rules) {
	d.Helper()
	scopes := map[string][]post{}
	for _, m := range d.messages() {
		e, known := d.events[m.Text]
		if !known {
			d.Errorf("message %q is no event's", m.Text)
		}
		// Redis has the wall clock, so the comparison must not use Go's monotonic one.
		p := post{event: m.Text, at: m.Time.UnixMicro()}
		for _, scope := range []string{"global", e.category} {
			scopes[scope] = append(scopes[scope], p)
		}
	}
	for _, scope := range slices.Sorted(maps.Keys(scopes)) {
		limit := rules.Category
		if scope == "global" {
			limit = rules.Global
		}
		for _, tier := range limit {
			count, until := fullest(scopes[scope], tier.Window)
			d.Logf("%s %s: %d events in the fullest window", scope, tier, count)
			if count > tier.Count {
				d.Errorf("%s %s: %d events in the window until %s", scope, tier, count,
					time.UnixMicro(until).UTC().Format("15:04:05.000000"))
			}
			if scope == "global" && count < tier.Count {
				d.Errorf("global %s: %d events in the fullest window: the limit was not used up", tier, count)
			}
		}
	}
}
