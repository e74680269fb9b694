package status

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/status/report"
	"notifier/internal/steering"
	"notifier/internal/term"
)

// maxNamed bounds the reasons, channels and full limits that a sentence names.
const maxNamed = 2

// summary is the state in a sentence or two. It begins with "Not sending: ", "Sending, but not to " or
// "Sending.", or with "Unknown: " in a command whose user Redis refuses: the workers' may be another.
func (v view) summary(findings []finding, limits []Limit, reserved int) string {
	if v.blind && len(v.replicas) == 0 && report.Trouble(v.readErr.Error()) == report.Denied {
		return "Unknown: " + cut("Redis refuses this user: "+replyOf(v.readErr), maxMessage) + "."
	}
	var everything, stopped []finding
	for _, f := range findings {
		switch {
		case f.stops && f.ofChannel():
			stopped = append(stopped, f)
		case f.stops:
			everything = append(everything, f)
		}
	}
	switch {
	case len(everything) > 0:
		return "Not sending: " + messagesOf(everything) + "." + v.heldText()
	case len(stopped) > 0 && v.isEachStopped(stopped):
		return "Not sending: " + stopped[0].channel() + ": " + stopped[0].message + "." + v.heldText()
	case v.allFail(stopped):
		return "Not sending: " + namesOf(stopped) + ": " + stopped[0].message + "." + v.heldText()
	case len(stopped) > 0:
		text := "Sending, but not to " + namesOf(stopped) + ": " + stopped[0].message + "."
		return text + v.slots(limits, reserved)
	case v.readErr != nil:
		return cut("Sending. The limits are unknown: "+cause(v.readErr.Error()), maxMessage) + "."
	}
	return "Sending." + v.slots(limits, reserved)
}

// slots is fullness, after a sentence about a clock that frees none.
func (v view) slots(limits []Limit, reserved int) string {
	text := fullness(limits, reserved, v.now)
	if len(v.clock()) > 0 {
		text = " No slot becomes free: the clock of Redis was set back." + text
	}
	return text
}

// replyOf returns the reply of Redis that an error wraps, without the full stop that some replies have.
func replyOf(err error) string {
	text := cause(err.Error())
	var reply redis.Error
	if errors.As(err, &reply) {
		text = reply.Error()
	}
	return strings.TrimSuffix(text, ".")
}

func messagesOf(findings []finding) string {
	var messages []string
	for _, f := range findings[:min(len(findings), maxNamed)] {
		messages = append(messages, f.message)
	}
	return strings.Join(messages, "; ")
}

func namesOf(channels []finding) string {
	var names []string
	for _, f := range channels {
		names = append(names, f.channel())
	}
	return listFirst(names, maxName)
}

// allFail reports whether several channels fail and no event was sent since. Then Slack is down, although other
// channels have had no event that noticed.
func (v view) allFail(stopped []finding) bool {
	var since time.Time
	failing := 0
	for _, f := range stopped {
		if f.fails && !f.since.IsZero() {
			since = earlier(since, f.since)
			failing++
		}
	}
	return failing > 1 && v.nothingSentSince(since)
}

func (f finding) channel() string { return strings.TrimPrefix(f.kind, channelPrefix) }

// isEachStopped reports whether no configured channel is left.
func (v view) isEachStopped(stopped []finding) bool {
	isStopped := map[string]bool{}
	for _, f := range stopped {
		isStopped[f.channel()] = true
	}
	left := slices.ContainsFunc(v.channels, func(name string) bool { return !isStopped[short(name)] })
	return len(v.channels) > 0 && !left
}

func (v view) heldText() string {
	held := 0
	for _, replica := range v.running() {
		held += max(0, replica.Snapshot.Held)
	}
	if held == 0 {
		return ""
	}
	return " " + term.CountAre(held, "event") + " held."
}

// fullness is " 23 of 100 global slots are used; errors is full for 29m58s.", or "" if the limits are unknown.
// It names the reservations once the other categories may have no slots left.
func fullness(limits []Limit, reserved int, now time.Time) string {
	if len(limits) == 0 {
		return ""
	}
	global := limits[0]
	for _, limit := range limits {
		isFuller := cmp.Or(limit.FreeAt.Compare(global.FreeAt), cmp.Compare(limit.fullness(), global.fullness())) > 0
		if limit.Scope == steering.GlobalScope && isFuller {
			global = limit
		}
	}
	text := fmt.Sprintf(" %d of %d global slots are used", global.Used, global.Max)
	if !global.FreeAt.IsZero() {
		return text + "; everything is dropped for " + global.wait(now) + "."
	}
	if reserved > 0 && global.Used+reserved >= global.Max {
		text += fmt.Sprintf(", and %d are reserved", reserved)
	}
	full := fullScopes(limits)
	for i, limit := range full[:min(len(full), maxNamed)] {
		separator := "; "
		if i > 0 {
			separator = ", "
		}
		text += fmt.Sprintf("%s%s is full for %s", separator, limit.name(), limit.wait(now))
	}
	if more := len(full) - maxNamed; more > 0 {
		text += fmt.Sprintf(", and %s full", term.CountAre(more, "more limit"))
	}
	return text + "."
}

// fullScopes lists the tier that is full for longest of each full group and category, those with the most drops
// first.
func fullScopes(limits []Limit) (full []Limit) {
	for _, limit := range limits {
		if limit.FreeAt.IsZero() {
			continue
		}
		at := slices.IndexFunc(full, func(f Limit) bool { return f.Scope == limit.Scope })
		switch {
		case at < 0:
			full = append(full, limit)
		case limit.FreeAt.After(full[at].FreeAt):
			full[at] = limit
		}
	}
	slices.SortStableFunc(full, func(a, b Limit) int { return cmp.Compare(b.Dropped1h, a.Dropped1h) })
	return full
}

// name is "errors" or "group team-a".
func (l Limit) name() string {
	if group, found := strings.CutPrefix(l.Scope, steering.GroupPrefix); found {
		return "group " + short(group)
	}
	return short(strings.TrimPrefix(l.Scope, steering.CategoryPrefix))
}

// wait is "29m58s" or "at least 29m58s", the time until there is room.
func (l Limit) wait(now time.Time) string {
	if l.AtLeast {
		return "at least " + span(l.FreeAt.Sub(now))
	}
	return span(l.FreeAt.Sub(now))
}
