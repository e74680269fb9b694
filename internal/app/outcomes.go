package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"notifier/internal/admin"
	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/internal/status"
	"notifier/internal/term"
)

// outcomes is the worker's part in the stream of outcomes: what it records, and what it shows of all
// workers'.
type outcomes struct {
	off      string           // why there is none; empty: there is
	place    recent.Place     // where they are
	recorder *recent.Recorder // nil: off
	reader   *recent.Reader   // nil: off
	tail     *recent.Tail     // nil: off
	worker   string           // its name in records
	maxAge   time.Duration    // older events are dropped as expired

	// channel is where an event goes, as the settings name it: Slack's answers have the ID alone.
	channel func(event.Event) string
}

// newOutcomes makes what records outcomes. Where there can be none a worker goes on without.
func (a *app) newOutcomes() (*outcomes, error) {
	o := &outcomes{worker: a.replica, maxAge: a.settings.MaxAge, channel: a.poster.Channel}
	place, err := recent.NewPlace(a.settings.NATS.Stream, a.settings.NATS.Pattern)
	if err != nil {
		o.off = err.Error()
		a.log.Warn("outcomes are not recorded", zap.Error(err))
		return o, nil
	}
	o.place = place
	config := recent.Config{
		Place: place, Connection: a.connection.Conn, Replicas: a.settings.NATS.Replicas, Log: a.log,
	}
	if o.recorder, err = recent.NewRecorder(config); err != nil {
		return nil, err
	}
	o.reader = recent.NewReader(a.connection.Conn, place)
	o.tail = recent.NewTail(o.reader)
	a.connection.setDenied(o.denied)
	return o, nil
}

// denied takes what the server has denied to the connection, and reports whether it concerns outcomes.
func (o *outcomes) denied(err error) bool {
	return o.reader.Denied(err) || o.recorder.Denied(err)
}

// settled records settled events that are alike.
func (o *outcomes) settled(sum result.Sum, now time.Time) {
	kind := recent.Kind{Category: sum.Category, Outcome: sum.Outcome, Reason: sum.Reason}
	o.recorder.Record(kind, len(sum.Results), func(i int) recent.Outcome {
		return o.record(sum.Results[i], now)
	})
}

// record is a settled event as it is recorded: what its log line has.
func (o *outcomes) record(s *result.Result, now time.Time) recent.Outcome {
	r := recent.Outcome{
		Time: now.UTC(), EventID: s.Event.ID, Category: s.Event.Category, Source: s.Event.Source,
		Outcome: s.Outcome, Reason: s.Reason, Detail: s.Detail,
		SlackTS: s.SlackTS, Attempts: s.Attempts, Ambiguous: s.Ambiguous, Found: s.Found,
		NoLetter: s.NoLetter, LetterSeq: s.LetterSeq,
		Subject: s.Event.Subject, StreamSeq: s.StreamSeq(), Worker: o.worker,
	}
	if s.Channel != "" {
		r.Channel = o.channel(s.Event)
	}
	if s.Reason == outcome.Expired {
		r.Age, r.MaxAge = term.Seconds(now.Sub(s.Event.Time)), term.Seconds(o.maxAge)
	}
	if s.Tier.Count > 0 {
		r.Limit, r.AboveLimit, r.Reserved = s.Tier.String(), s.Never, s.Reserved
		if !s.Never {
			r.RetryAfter, r.AtLeast = term.Seconds(s.RetryAfter), s.AtLeast
		}
	}
	if s.Mute != nil {
		until := s.Mute.Until.UTC()
		r.Mute, r.MutedUntil, r.MutedBy, r.MuteReason = s.Mute.Target, &until, s.Mute.By, s.Mute.Reason
	}
	return r
}

// eventsAnswer is what /api/events answers.
type eventsAnswer struct {
	Time    time.Time        `json:"time"`
	Stream  string           `json:"stream"`
	Events  []recent.Outcome `json:"events"`            // the newest first
	Partial bool             `json:"partial,omitempty"` // there may be others, which were not looked at
	Note    string           `json:"note,omitempty"`    // why there is nothing
}

// Text says for people how many there are, and what is missing.
func (a eventsAnswer) Text() string {
	text, leftOut := cmp.Or(a.Note, "there are none")+".", uint64(0)
	if len(a.Events) > 0 {
		text = "The newest " + term.Count(len(a.Events), "event") + "."
	}
	for _, o := range a.Events {
		leftOut += o.LeftOut + o.LeftOutOthers
	}
	if leftOut > 0 {
		text += fmt.Sprintf(" Besides, %d were not recorded, because there were too many.", leftOut)
	}
	if a.Partial {
		text += " There may be others, which were not looked at."
	}
	return text
}

// Table has a row for each event.
func (a eventsAnswer) Table() *status.PageTable {
	if len(a.Events) == 0 {
		return nil
	}
	table := &status.PageTable{ID: "events", Caption: "Outcomes of recent events, the newest first"}
	table.Columns = []status.PageColumn{
		{Title: "Settled"},
		{Title: "Category"},
		{Title: "Outcome"},
		{Title: "Why", Class: "wide"},
		{Title: "Event"},
		{Title: "Source"},
	}
	for _, o := range a.Events {
		key := fmt.Sprint(o.Worker, o.Seq, o.Time, o.EventID)
		table.Rows = append(table.Rows, status.PageRow{Key: key, Cells: []status.PageCell{
			{Time: &o.Time}, {Text: o.Category}, {Text: strings.TrimSpace(o.Outcome + " " + o.Reason)},
			{Text: o.Summary()}, {Text: o.EventID}, {Text: o.Source},
		}})
	}
	return table
}

// list answers /api/events.
func (o *outcomes) list(caller, ctx context.Context, query admin.EventsQuery) (any, error) {
	if o.off != "" {
		return nil, fmt.Errorf("outcomes are not recorded: %s", o.off)
	}
	answer := eventsAnswer{Time: time.Now().UTC(), Stream: o.place.Stream, Events: []recent.Outcome{}}
	filter := recent.Filter{Category: query.Category, Outcome: query.Outcome, Limit: query.N}
	found, err := o.tail.List(caller, ctx, filter)
	switch {
	case errors.Is(err, recent.ErrNoStream):
		answer.Note = "nothing was recorded yet: the stream " + o.place.Stream +
			" does not exist, or does not allow direct reads"
	case err != nil:
		return nil, fmt.Errorf("stream %s: %w", o.place.Stream, err)
	case len(found.Outcomes) > 0:
		answer.Events, answer.Partial = found.Outcomes, found.Partial
	default:
		answer.Partial = found.Partial
		answer.Note = "nothing was recorded of these within " + term.ShortDuration(recent.MaxAge)
	}
	return answer, nil
}
