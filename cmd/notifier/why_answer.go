package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/internal/ratelimit"
	"notifier/internal/status"
	"notifier/internal/status/stats"
	"notifier/internal/term"
)

// States of an event besides its outcome.
const (
	stateInFlight = "in_flight"
	stateUnknown  = "unknown"
)

// whyAnswer is what is known of one event, as JSON for scripts. What is not known is left out.
type whyAnswer struct {
	EventID  string       `json:"event_id"`
	State    string       `json:"state"` // sent, in_flight, dropped, dead or unknown
	Category string       `json:"category,omitempty"`
	Source   string       `json:"source,omitempty"` // what the id counts together with
	Channel  string       `json:"channel,omitempty"`
	Admitted time.Time    `json:"admitted,omitzero"`
	Posts    int          `json:"posts,omitempty"` // in flight: posts that have begun
	LastPost time.Time    `json:"last_post,omitzero"`
	Sent     time.Time    `json:"sent,omitzero"`
	WaitsFor []stats.Wait `json:"waits_for,omitempty"` // in flight or unread
	Unread   *unread      `json:"unread,omitempty"`    // unknown, or dead and replayed: what it may be one of
	NotAsked string       `json:"not_asked,omitempty"` // unknown: why NATS did not answer
	KnownIn  []string     `json:"known_in,omitempty"`  // unknown: other categories with an event of this id

	// In flight, and Slack has not taken it: its code at the last post, and when the next is due at the
	// earliest.
	LastError string    `json:"last_error,omitempty"`
	NextPost  time.Time `json:"next_post,omitzero"`

	Recorded      *whyRecorded `json:"recorded,omitempty"`   // by the worker that settled it
	Duplicates    int          `json:"duplicates,omitempty"` // later events with its id
	LastDuplicate time.Time    `json:"last_duplicate,omitzero"`

	again bool // a later event with its id is known: it was replayed, or published again
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// whyRecorded is a recorded outcome, and when the limit that refused it had room again.
type whyRecorded struct {
	recent.Outcome
	RoomAt     time.Time `json:"room_at,omitzero"`
	LetterGone bool      `json:"letter_gone,omitempty"` // it was replayed, deleted or displaced
}

// newAnswers puts together what Redis and workers know of the events with an id; outcomes has the latest
// first. An event that both know is one answer, and its duplicates are part of it.
func newAnswers(id string, traces []ratelimit.Trace, outcomes []recent.Outcome) (answers []whyAnswer) {
	for _, trace := range traces {
		a := whyAnswer{
			EventID: id, State: outcome.Sent, Category: trace.Category, Source: event.ShownSource(trace.Source),
			Admitted: trace.Admitted, Posts: trace.Posts, LastPost: trace.LastPost, Sent: trace.Sent,
		}
		if trace.InFlight {
			a.State = stateInFlight
		}
		answers = append(answers, a)
	}
	for _, o := range outcomes {
		if o.Reason == outcome.Duplicate {
			continue
		}
		at := -1
		if o.Outcome == outcome.Sent {
			at = indexOf(answers, o, outcome.Sent)
		}
		if at < 0 {
			a := newRecorded(o)
			a.again = slices.ContainsFunc(answers, func(later whyAnswer) bool {
				return later.latest().After(o.Time) && (later.isOf(o, o.Source) || later.isOf(o, ""))
			})
			answers = append(answers, a)
		} else if answers[at].Recorded == nil {
			answers[at].Recorded, answers[at].Channel = &whyRecorded{Outcome: o}, o.Channel
		}
	}
	for _, o := range outcomes {
		if o.Reason != outcome.Duplicate {
			continue
		}
		at := indexOf(answers, o, outcome.Sent, stateInFlight)
		if at < 0 {
			answers = append(answers, newRecorded(o))
			continue
		}
		answers[at].Duplicates++
		if o.Time.After(answers[at].LastDuplicate) {
			answers[at].LastDuplicate = o.Time
		}
	}
	return answers
}

func newRecorded(o recent.Outcome) whyAnswer {
	a := whyAnswer{
		EventID: o.EventID, State: o.Outcome, Category: o.Category, Source: o.Source, Channel: o.Channel,
		Recorded: &whyRecorded{Outcome: o},
	}
	if o.Limit != "" && !o.AboveLimit {
		a.Recorded.RoomAt = o.RoomAt()
	}
	if o.Outcome == outcome.Sent {
		a.Sent = o.Time.UTC()
	}
	return a
}

// indexOf finds the answer, in one of these states, about an event with the identity of an outcome's; -1:
// there is none. Only a CloudEvent's source is part of an identity. Other sources are not known to Redis, so
// an answer without one can be it, too.
func indexOf(answers []whyAnswer, o recent.Outcome, states ...string) int {
	for _, source := range []string{o.Source, ""} {
		at := slices.IndexFunc(answers, func(a whyAnswer) bool {
			return a.isOf(o, source) && slices.Contains(states, a.State)
		})
		if at >= 0 {
			return at
		}
	}
	return -1
}

// isOf reports whether it is about an event with the category of an outcome, and with this source.
func (a whyAnswer) isOf(o recent.Outcome, source string) bool {
	return a.Category == o.Category && a.Source == source
}

// latest is the last thing that is known to have happened to the event.
func (a whyAnswer) latest() time.Time {
	latest := a.Admitted
	if a.Sent.After(latest) {
		latest = a.Sent
	}
	if a.Recorded != nil && a.Recorded.Time.After(latest) {
		latest = a.Recorded.Time
	}
	return latest
}

// mayBeUnread reports whether the event can wait in the stream, without a trace or replayed.
func (a whyAnswer) mayBeUnread() bool {
	return a.State == stateUnknown || a.State == outcome.Dead && !a.again && !a.Recorded.NoLetter
}

// categoriesOf are the categories of answers, each once.
func categoriesOf(answers []whyAnswer) (categories []string) {
	for _, a := range answers {
		categories = append(categories, a.Category)
	}
	slices.Sort(categories)
	return slices.Compact(categories)
}

// waits reports whether the event is held, or may wait unread.
func (a whyAnswer) waits() bool { return a.State == stateInFlight || a.Unread != nil }

// waitForRedis notes that nothing goes on without Redis, if the event waits at all.
func (a *whyAnswer) waitForRedis(err error) {
	if a.waits() {
		kind, text := status.RedisTrouble(err)
		a.WaitsFor = []stats.Wait{{For: "redis", Kind: kind, Reason: text}}
	}
}

// text is the answer for people.
func (a whyAnswer) text() string {
	if a.State == stateUnknown {
		return strings.Join(a.unknown(), "\n")
	}
	lines := []string{a.headline()}
	add := func(name, text string) { lines = append(lines, row(name, text)) }
	if a.Source != "" {
		add("source", a.Source)
	}
	if !a.Admitted.IsZero() {
		add("admitted", stamp(a.Admitted))
	}
	if a.Posts > 0 {
		add("tried", a.triedText())
	}
	switch {
	case !a.Sent.IsZero():
		add("sent", stamp(a.Sent))
	case a.Recorded != nil:
		add(a.State, stamp(a.Recorded.Time))
	}
	if a.Recorded != nil {
		for _, f := range a.Recorded.Facts() {
			if f.Name == "letter" && a.Recorded.LetterGone {
				f.Text = fmt.Sprintf("%d is gone: it was replayed, deleted, or displaced by later ones", a.Recorded.LetterSeq)
			}
			add(f.Name, f.Text)
		}
		if a.Recorded.Reason == outcome.Duplicate {
			add("first", "not known any more: it was sent within DEDUPE_WINDOW before, or was in flight")
		}
	} else if a.Channel != "" {
		add("channel", a.Channel)
	}
	if a.Unread != nil {
		add("replayed", "if it was replayed, it may be "+a.Unread.String())
	}
	for _, wait := range a.WaitsFor {
		add("because", wait.Text())
	}
	if a.Duplicates == 1 {
		add(
			"repeats",
			"1 event with this id came later and was dropped as its duplicate, at "+stamp(a.LastDuplicate),
		)
	} else if a.Duplicates > 1 {
		add(
			"repeats",
			fmt.Sprintf("%d events with this id came later and were dropped as its duplicates, the last at %s",
				a.Duplicates, stamp(a.LastDuplicate)),
		)
	}
	return strings.Join(lines, "\n")
}

// triedText is how an event in flight was tried: "4 times, last at ..., failed with http_503; again at ... or
// later".
func (a whyAnswer) triedText() string {
	text := term.Count(a.Posts, "time") + ", last at " + stamp(a.LastPost)
	switch {
	case a.LastError != "":
		text += ", failed with " + a.LastError
	case len(a.WaitsFor) == 0:
		text += "; its result is not known yet"
	}
	if !a.NextPost.IsZero() {
		text += "; again at " + a.NextPost.UTC().Format(time.RFC3339) + " or later"
	}
	return text
}

func row(name, text string) string { return fmt.Sprintf("  %-9s %s", name, text) }

func (a whyAnswer) headline() string {
	of := a.EventID + " of category " + a.Category
	switch a.State {
	case stateInFlight:
		if len(a.WaitsFor) > 0 || a.LastError != "" {
			return of + " is admitted and held."
		}
		return of + " is admitted and on its way to Slack."
	case outcome.Sent:
		return of + " was sent."
	case outcome.Dead:
		if a.again {
			return fmt.Sprintf("%s was dead before: %s.", of, a.Recorded.Reason)
		}
		return fmt.Sprintf("%s is dead: %s.", of, a.Recorded.Reason)
	}
	return fmt.Sprintf("%s was dropped: %s.", of, a.Recorded.Reason)
}

// unknown is what an event without a trace can be.
func (a whyAnswer) unknown() (lines []string) {
	of := ""
	if a.Category != "" {
		of = " in category " + a.Category
	}
	why := "it was sent longer ago than DEDUPE_WINDOW, was dropped or dead-lettered more than 24 hours ago or in a storm, or never arrived."
	switch {
	case a.NotAsked != "":
		lines = append(
			lines,
			a.EventID+" is not known to Redis"+of+", and NATS did not answer: it may be dropped, dead or unread.",
		)
	case a.Unread == nil:
		lines = append(lines, a.EventID+" is unknown"+of+": "+why)
	default:
		lines = append(lines, fmt.Sprintf("%s%s may be %s.", a.EventID, of, a.Unread))
		for _, wait := range a.WaitsFor {
			lines = append(lines, row("because", wait.Text()))
		}
		lines = append(lines, "If it is not, "+why)
	}
	if len(a.KnownIn) > 0 {
		lines = append(lines, fmt.Sprintf("There is an event with this id in %s: notifier why %s",
			term.List(a.KnownIn), a.EventID))
	}
	return append(lines, "The log has a line for each event: search it for this event_id.")
}

// String is what an unknown event may be one of: "one of the 12 events that wait unread in stream NOTIFY, the
// oldest since ...".
func (u unread) String() string {
	var parts []string
	if u.Events > 0 {
		text := fmt.Sprintf("one of the %d events that wait unread in stream %s", u.Events, u.Stream)
		since := "the oldest since "
		if u.Events == 1 {
			text, since = "the one event that waits unread in stream "+u.Stream, "since "
		}
		switch {
		case !u.Oldest.IsZero():
			text += ", " + since + u.Oldest.UTC().Format(time.RFC3339)
		case !u.LastRead.IsZero():
			text += ", from which workers last read at " + u.LastRead.UTC().Format(time.RFC3339)
		}
		parts = append(parts, text)
	}
	if u.Read > 0 {
		text := fmt.Sprintf("one of the %d events that workers have read and not settled", u.Read)
		if u.Read == 1 {
			text = "the one event that workers have read and not settled"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", or ")
}
