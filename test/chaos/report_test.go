package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"notifier/internal/devstack"
)

// mostShown is how many problems are shown in full.
const mostShown = 8

// judge fails the test for every problem, and shows the figures.
func (a *account) judge() {
	a.w.Helper()
	for i, text := range a.problems {
		if i == mostShown {
			a.w.Errorf("and %d problems more", len(a.problems)-i)
			break
		}
		a.w.Error(text)
	}
}

// report is the figures of a run.
func (a *account) report() string {
	var b strings.Builder
	d := a.w.diary
	crashes := len(d.of(faultKill))
	per1000 := 0.0
	if crashes > 0 {
		per1000 = 1000 * float64(a.duplicates) / float64(crashes)
	}
	var reasons []string
	for reason, n := range a.dropped {
		reasons = append(reasons, fmt.Sprintf("%s %d", reason, n))
	}
	slices.Sort(reasons)
	fmt.Fprintf(&b, "events               %d, acknowledged %d times\n", len(a.events), a.w.publisher.acknowledged())
	fmt.Fprintf(&b, "sent                 %d, in %d messages\n", a.sent, a.w.slack.Accepted())
	fmt.Fprintf(&b, "dropped              %s\n", strings.Join(reasons, ", "))
	fmt.Fprintf(&b, "dead                 %d\n", a.dead)
	fmt.Fprintf(&b, "unaccounted          %d\n", a.unaccounted)
	fmt.Fprintf(&b, "wrongly charged      %d\n", a.wronglyCharged)
	fmt.Fprintf(&b, "windows above limit  %d\n", a.overfull)
	fmt.Fprintf(&b, "more than once       %d, %.0f per 1000 crashes; found in the channel instead %d\n", a.duplicates, per1000, a.lookedUp)
	fmt.Fprintf(&b, "redelivered          %d lines; decided anew %d, outlived their window %d, slots lost in a crash %d, refunds forgotten %d\n", a.redelivered, a.anew, a.outlived, a.slotsLost, a.refundsForgotten)
	fmt.Fprintf(&b, "sent, and forgotten  %d records\n", a.sentForgotten)
	fmt.Fprintf(&b, "healed without all   %d times; windows above their limit then %d\n", len(a.unheard), a.excused)
	cameBack := 0
	for _, m := range a.w.register.all {
		if m.back && len(a.posts[m.id()]) > 0 {
			cameBack++
		}
	}
	fmt.Fprintf(&b, "came back            %d slots of events that were refunded by one worker and posted by another\n", cameBack)
	fmt.Fprintf(&b, "faults               %s\n", d.counts())
	fmt.Fprintf(&b, "429 by a channel     %d, and %d in the one that audit has\n",
		a.w.slack.Refused(channel).ChannelLimit, a.w.slack.Refused(strings.TrimPrefix(routes, "audit=")).ChannelLimit)
	paced := 0
	for _, l := range a.lives {
		if l.pace != "off" {
			paced++
		}
	}
	fmt.Fprintf(&b, "started with a pace  %d of %d processes\n", paced, len(a.lives))
	fmt.Fprintf(&b, "looks at the register %d, the longest time between two %s\n", a.w.register.looks, a.w.register.longest.Round(time.Millisecond))
	fmt.Fprintf(&b, "recovered from Redis %s\n", a.resumed(faultRedis))
	fmt.Fprintf(&b, "recovered from NATS  %s\n", a.resumed(faultNATS))
	fmt.Fprintf(&b, "recovered from Slack %s", a.resumedPosting())
	return b.String()
}

// resumed is, for each time that a server came back, how long it took to the next line about an event that was published
// after that: such a line needs all three servers. Where something else in the way was broken again before, it is left out.
func (a *account) resumed(kind string) recoveries {
	return a.recover(kind, []string{faultRedis, faultNATS, faultConsumer}, func(back time.Time) (time.Time, bool) {
		for _, l := range a.settled {
			if e := a.events[l.EventID]; e != nil && e.acks[0].at.After(back) && l.Time.After(back) {
				return l.Time, true
			}
		}
		return time.Time{}, false
	})
}

// resumedPosting is the same for Slack, to the next message.
func (a *account) resumedPosting() recoveries {
	messages := a.w.slack.Messages()
	return a.recover(faultSlack, []string{faultSlack, faultBrownOut, faultLimited, faultChannels, faultLost, faultRejects, faultRefuses}, func(back time.Time) (time.Time, bool) {
		i := slices.IndexFunc(messages, func(m devstack.Message) bool { return m.Time.After(back) })
		if i < 0 {
			return time.Time{}, false
		}
		return messages[i].Time, true
	})
}

// recoveries are the times that it took to go on, and how many are not known.
type recoveries struct {
	times []time.Duration
	cut   int // something was broken again before
}

func (a *account) recover(kind string, again []string, next func(back time.Time) (time.Time, bool)) recoveries {
	var r recoveries
	for _, f := range a.w.diary.of(kind) {
		back := f.hours.to
		on, there := next(back)
		broken := slices.ContainsFunc(a.w.diary.of(again...), func(other fault) bool {
			return other.hours.from.After(back) && (!there || other.hours.from.Before(on))
		})
		switch {
		case broken:
			r.cut++
		case there:
			r.times = append(r.times, on.Sub(back))
		}
	}
	return r
}

func (r recoveries) String() string {
	times := r.times
	if len(times) == 0 {
		return "-"
	}
	slices.Sort(times)
	late := 0
	for _, d := range times {
		if d > 2*time.Second {
			late++
		}
	}
	return fmt.Sprintf("median %s, worst %s; %d of %d took more than 2s, %d more were broken again before", times[len(times)/2].Round(time.Millisecond),
		times[len(times)-1].Round(time.Millisecond), late, len(times), r.cut)
}
