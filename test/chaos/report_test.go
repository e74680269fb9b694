package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// mostShown limits the problems that a failed test prints.
const mostShown = 8

// judge fails the test if there are problems.
func (a *audit) judge() {
	a.d.Helper()
	for i, text := range a.problems {
		if i == mostShown {
			a.d.Errorf("and %d problems more", len(a.problems)-i)
			break
		}
		a.d.Error(text)
	}
}

// report returns the figures of the run.
func (a *audit) report() string {
	var b strings.Builder
	crashes := len(a.d.faults.of(faultKill))
	per1000 := 0.0
	if crashes > 0 {
		per1000 = 1000 * float64(a.duplicates) / float64(crashes)
	}
	var reasons []string
	for reason, n := range a.dropped {
		reasons = append(reasons, fmt.Sprintf("%s %d", reason, n))
	}
	slices.Sort(reasons)
	fmt.Fprintf(&b, "events               %d, acknowledged %d times\n", len(a.events), a.d.publisher.acknowledged())
	fmt.Fprintf(&b, "sent                 %d, in %d messages\n", a.sent, a.d.slack.Accepted())
	fmt.Fprintf(&b, "dropped              %s\n", strings.Join(reasons, ", "))
	fmt.Fprintf(&b, "dead                 %d\n", a.dead)
	fmt.Fprintf(&b, "unaccounted          %d\n", a.unaccounted)
	for _, seq := range slices.Sorted(maps.Keys(a.missing)) {
		fmt.Fprintf(&b, "  %s\n", a.missing[seq])
	}
	fmt.Fprintf(&b, "wrongly charged      %d\n", a.wronglyCharged)
	fmt.Fprintf(&b, "windows above limit  %d\n", a.overfull)
	fmt.Fprintf(&b, "more than once       %d, %.0f per 1000 crashes; found in the channel instead %d\n", a.duplicates, per1000, a.lookedUp)
	fmt.Fprintf(&b, "redelivered          %d lines\n", a.redelivered)
	fmt.Fprintf(&b, "refusals judged      %d of %d lines\n", a.judgedRefusals, len(a.settled))
	fmt.Fprintf(&b, "slots lost           %d in a crash or to a restore, %d because a refund was forgotten\n",
		a.slotsLost, a.refundsForgotten)
	fmt.Fprintf(&b, "faults               %s\n", a.d.faults.counts())
	fmt.Fprintf(&b, "429 by a channel     %d, and %d in the one of billing\n",
		a.d.slack.Limited(channel), a.d.slack.Limited(strings.TrimPrefix(routes, "billing=")))
	paced := 0
	for _, l := range a.processes {
		if l.pace != "off" {
			paced++
		}
	}
	fmt.Fprintf(&b, "started with a pace  %d of %d processes\n", paced, len(a.processes))
	fmt.Fprintf(&b, "looks at the ledger %d, the longest time between two %s", a.d.ledger.looks, a.d.ledger.longest.Round(time.Millisecond))
	return b.String()
}
