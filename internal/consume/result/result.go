// Package result describes how an event ended. Every step on an event's way adds to its Result; package consume
// logs it, counts it and acknowledges the event.
package result

import (
	"time"

	"notifier/internal/consume/feed"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/steering"
	"notifier/internal/term"
)

// Result describes the end of one event, as far as it is known.
type Result struct {
	Event   event.Event
	Outcome string // one of package outcome's
	Reason  string // one of package outcome's; empty when sent
	Detail  string // dead: the fault, or Slack's code and explanation

	LetterSeq uint64 // dead: the sequence of its letter in the dead-letter stream, once it is stored

	NoLetter bool // dead: it has no letter, because its category has written its share

	Tier       ratelimit.Tier // dropped by a limit: the tier that refused
	RetryAfter time.Duration  // dropped by a limit: when an event of its cost would fit
	AtLeast    bool           // ... or later
	Never      bool           // dropped by a temporary limit below its cost: it does not fit before that ends
	Reserved   int            // dropped by the global limit: slots of the tier kept for other categories

	Age, MaxAge time.Duration // dropped as expired

	Mute *steering.Order // dropped as muted: by which mute

	Channel   string        // sent or rejected by Slack: the channel
	SlackTS   string        // sent with a token: names the message
	Attempts  int           // begun posts, with the known ones of other workers
	Latency   time.Duration // sent: from publication until Slack replied
	Ambiguous bool          // an earlier attempt may have reached Slack too
	LastPost  string        // dropped by a limit after posts: the name of the last one, as Redis has it
	Found     bool          // sent: such an attempt was found in the channel, and no other was made

	Header  map[string][]string // the message's, as far as they are kept; read only
	Decided time.Time           // time of the script's decision; zero without one
	Posted  time.Time           // begin of the last post; zero without one

	Delivery *feed.Delivery // it ends when the event is settled
	Ended    time.Time      // when it was settled; of a letter, when that was offered or kept
	Group    string         // of the category, if the group has a limit; set when the event is settled
}

// Record makes the record of the event's end. It is complete once the event is settled.
func (r *Result) Record() outcome.Record {
	record := r.SharedRecord()
	r.Complete(&record)
	return record
}

// SharedRecord makes the part of the record that events of a kind have in common. In a storm a batch has few
// kinds, and these are the values that cost time to format.
func (r *Result) SharedRecord() outcome.Record {
	record := outcome.Record{
		Category: r.Event.Category, Subject: r.Event.Subject, Source: r.Event.Source, Group: r.Group,
		Outcome: r.Outcome, Reason: r.Reason,
	}
	if r.Tier.Count > 0 {
		record.Limit, record.AboveLimit, record.Reserved = r.Tier.String(), r.Never, r.Reserved
	}
	if r.Tier.Count > 0 && !r.Never {
		record.RetryAfter, record.AtLeast = term.Seconds(r.RetryAfter), r.AtLeast
	}
	if r.Mute != nil {
		record.Mute, record.MutedUntil = r.Mute.Target, r.Mute.Until.UTC()
		record.MutedBy, record.MuteReason = r.Mute.By, r.Mute.Reason
	}
	return record
}

// Complete adds the rest to a SharedRecord.
func (r *Result) Complete(record *outcome.Record) {
	record.Time, record.EventID, record.Detail = r.Ended.UTC(), r.Event.ID, r.Detail
	record.Age, record.MaxAge = term.Seconds(r.Age), term.Seconds(r.MaxAge)
	record.LetterSeq = r.LetterSeq
	record.Channel, record.SlackTS, record.Attempts = r.Channel, r.SlackTS, r.Attempts
	record.Ambiguous, record.Found = r.Ambiguous, r.Found
	if r.NoLetter {
		record.Letter = new(bool)
	}
	if r.Outcome == outcome.Sent {
		record.Latency = float64(r.Latency.Microseconds()) / 1000
	}
	if r.Delivery != nil {
		record.Redelivered, record.StreamSeq = r.Delivery.Redelivered.Load(), r.Delivery.Seq
	}
}
