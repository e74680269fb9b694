package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"notifier/internal/status/stats"
	"notifier/internal/steering"
	"notifier/internal/term"
)

// Bounds of the list.
const (
	mostLines  = 20
	mostSilent = 5  // silent replicas that are named
	mostOrders = 10 // mutes and temporary limits that are named
)

// attention lists what needs attention, the worst first. said is the kind of the sentence above it.
func (v view) attention(said string) []Attention {
	list := []Attention{}
	add := func(level, kind, text string) {
		if text != "" {
			list = append(list, Attention{Kind: kind, Level: level, Text: text})
		}
	}
	v.addWaits(add)
	for _, refusal := range v.refusals() {
		if refusal.Kind != said {
			add(refusal.Level, refusal.Kind, refusal.Text)
		}
	}
	add(LevelBad, "dead", deadText(v.Outcomes))
	for _, stream := range v.Streams {
		switch {
		case stream.NearlyFull():
			add(LevelBad, "stream "+stream.Name, "Stream "+stream.Text)
		case stream.Unknown != "":
			add(LevelNote, "stream "+stream.Name, "Stream "+stream.Text)
		}
	}
	own := LevelNote
	if len(v.Replicas) > 0 {
		own = LevelBad
	}
	add(own, "settings own", v.Settings.OwnText)
	for i, warning := range v.Settings.Warnings {
		add(LevelBad, fmt.Sprintf("settings %d", i+1), warning)
	}
	if v.redis.State == RedisCountsOnly {
		add(LevelNote, "counts", "Counts are not stored: "+v.redis.Reason)
	}
	for _, u := range v.Unposted {
		if u.Why != "" || u.OldestS >= shownAfter.Seconds() {
			add(LevelNote, "unposted "+u.Channel, u.Text)
		}
	}
	v.addReplicas(add)
	if f := v.Global.Forecast; said != "full" && f != nil && !f.Sends && f.At != nil && f.Left == 0 {
		add(
			LevelNote,
			"full",
			"The global limit is full for "+spanText(f.At.Sub(v.Time), f.AtLeast)+": everything is dropped",
		)
	}
	v.addSteering(add)
	rank := map[string]int{LevelBad: 0, LevelNote: 1}
	slices.SortStableFunc(list, func(a, b Attention) int { return cmp.Compare(rank[a.Level], rank[b.Level]) })
	if more := len(list) - mostLines; more > 0 {
		list = append(
			list[:mostLines],
			Attention{Kind: "more", Level: LevelNote, Text: fmt.Sprintf("and %d more", more)},
		)
	}
	return list
}

type adder func(level, kind, text string)

// sharedWait is what one or several replicas wait for.
type sharedWait struct {
	stats.Wait // since the first of them did
	kind       string
	replicas   []string
	held       int
}

// waits lists what replicas wait for, each thing once.
func (v view) waits() []*sharedWait {
	var list []*sharedWait
	for _, replica := range v.Replicas {
		for _, wait := range replica.Waits {
			kind := "wait " + wait.For + " " + cmp.Or(wait.Channel, wait.Reason)
			at := slices.IndexFunc(list, func(w *sharedWait) bool { return w.kind == kind })
			if at < 0 {
				at = len(list)
				list = append(list, &sharedWait{Wait: wait, kind: kind})
			}
			known := list[at]
			known.replicas, known.held = append(known.replicas, replica.ID), known.held+replica.HeldFor(wait)
			if wait.Since.Before(known.Since) {
				known.Since = wait.Since
			}
		}
	}
	return list
}

// addWaits adds what replicas wait for, and the pauses for which none waits yet.
func (v view) addWaits(add adder) {
	waits := v.waits()
	for _, w := range waits {
		who := w.replicas[0]
		if len(w.replicas) > 1 {
			who = term.Count(len(w.replicas), "replica")
		}
		how := fmt.Sprintf("for %s, %s, %s held", v.age(&w.Since), who, term.Count(w.held, "event"))
		if w.Channel == "" {
			add(LevelBad, w.kind, fmt.Sprintf("Waiting for %s (%s): %s", w.For, how, w.Text()))
			continue
		}
		add(LevelBad, w.kind, fmt.Sprintf("%s (%s)", w.Text(), how))
	}
	for _, pause := range v.Pauses {
		waited := func(w *sharedWait) bool { return w.Channel == pause.Channel && w.Channel != "" }
		if !slices.ContainsFunc(waits, waited) {
			add(LevelBad, "pause "+pause.Channel, pause.Text)
		}
	}
}

// addReplicas adds replicas that do not report, and those that are not ready and do not say what they wait
// for. While Redis stores no reports all others are silent.
func (v view) addReplicas(add adder) {
	var quiet []stats.Replica
	for _, replica := range v.Replicas {
		switch {
		case replica.Silent:
			quiet = append(quiet, replica)
		case v.unready(replica):
			add(LevelNote, "unready "+replica.ID, "Replica "+replica.ID+" is not ready")
		}
	}
	if v.redis.State != RedisOK {
		return
	}
	slices.SortStableFunc(quiet, func(a, b stats.Replica) int { return a.Seen.Compare(b.Seen) })
	for _, replica := range quiet[:min(len(quiet), mostSilent)] {
		add(
			LevelNote,
			"silent "+replica.ID,
			fmt.Sprintf("Replica %s has not reported for %s", replica.ID, v.age(&replica.Seen)),
		)
	}
	if more := len(quiet) - mostSilent; more > 0 {
		add(LevelNote, "silent", term.Count(more, "more replica")+" also not reporting")
	}
}

func (v view) addSteering(add adder) {
	if all := len(v.Steering) + v.MoreSteering; all > mostOrders {
		add(LevelNote, "steering", fmt.Sprintf("%d mutes and temporary limits are in force", all))
		return
	}
	for _, order := range v.Steering {
		add(LevelNote, "steering "+string(order.Kind)+" "+order.Target, orderText(order, v.Time))
	}
}

// orderText is an order for people.
func orderText(o steering.Order, now time.Time) string {
	text := fmt.Sprintf("%s until %s (%s), by %s",
		o.What(), o.Until.Format(time.RFC3339), term.Duration(o.Until.Sub(now)), cmp.Or(o.By, "nobody"))
	return strings.TrimSuffix(text+": "+o.Reason, ": ")
}

// write writes the sentence, and a line for each thing that needs attention.
func (s Summary) write(text *strings.Builder, screen term.Screen) {
	colours := map[string]term.Colour{LevelOK: term.Green, LevelNote: term.Yellow, LevelBad: term.Red}
	fmt.Fprintln(text, screen.Paint(colours[s.Level], term.Printable(s.Text)))
	for _, line := range s.Attention {
		fmt.Fprintln(text, screen.Paint(colours[line.Level], term.Printable(line.Text)))
	}
}
