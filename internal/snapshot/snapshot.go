// Package snapshot describes the state of one worker as that worker sees it: the outages it waits for, the
// queues of its channels, the streams, and the settings it runs with.
//
// A worker makes a Snapshot about once a second. The same value is its heartbeat in Redis, the body of
// /readyz?verbose and the source of its gauges, so these never disagree. The package holds the types and
// their text. Both the worker and the status import it without knowing each other.
package snapshot

import (
	"slices"
	"time"
)

// Snapshot describes one worker. Times are by the worker's own clock, but for Channel.Oldest, which is by the
// clock of NATS.
type Snapshot struct {
	ID      string    `json:"id"` // host name and a random suffix
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Time    time.Time `json:"time"` // when the snapshot was taken

	Ready    bool     `json:"ready"`
	NotReady []string `json:"not_ready,omitempty"` // reasons, the lines of /readyz

	InFlight int            `json:"in_flight"`          // fetched events that are not settled
	Held     int            `json:"held"`               // events in flight that wait for something, each counted once
	HeldFor  map[string]int `json:"held_for,omitempty"` // by cause; an event may have several
	Waits    []Wait         `json:"waits,omitempty"`
	Channels []Channel      `json:"channels,omitempty"`
	Failing  []Failing      `json:"failing,omitempty"`
	Streams  []Stream       `json:"streams,omitempty"`
	LastSent time.Time      `json:"last_sent,omitzero"`

	Steering int64    `json:"steering,omitempty"` // version of mutes and temporary limits in force; see package steering
	Settings Settings `json:"settings"`
}

// At returns the snapshot with its times by another clock, which shows now at s.Time. Clocks of hosts can be
// hours apart.
func (s Snapshot) At(now time.Time) Snapshot {
	shift := now.Sub(s.Time)
	if s.Time.IsZero() || shift.Abs() < time.Second { // the heartbeat was on its way
		return s
	}
	shifted := func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		if t = t.Add(shift).UTC(); t.Year() < 1 || t.Year() > 9999 { // JSON has no such year
			return time.Time{}
		}
		return t
	}
	s.Waits, s.Failing, s.Streams = slices.Clone(s.Waits), slices.Clone(s.Failing), slices.Clone(s.Streams)
	for i := range s.Waits {
		s.Waits[i].Since = shifted(s.Waits[i].Since)
	}
	s.Channels = slices.Clone(s.Channels)
	for i, c := range s.Channels {
		s.Channels[i].Accepted = shifted(c.Accepted)
		if c.Rejected != nil {
			r := *c.Rejected
			r.First, r.Last = shifted(r.First), shifted(r.Last)
			s.Channels[i].Rejected = &r
		}
	}
	for i := range s.Failing {
		s.Failing[i].Next = shifted(s.Failing[i].Next)
	}
	for i := range s.Streams {
		s.Streams[i].Seen = shifted(s.Streams[i].Seen)
	}
	s.Started, s.Time, s.LastSent = shifted(s.Started), now, shifted(s.LastSent)
	return s
}

// Wait describes one outage.
type Wait struct {
	For     string    `json:"for"`               // nats, consumer, redis, slack, credentials, dead_letter, log, redis_clock or redis_eviction
	Channel string    `json:"channel,omitempty"` // the Slack channel that takes no posts. Empty if it concerns all
	Reason  string    `json:"reason"`            // latest error, without secrets
	Since   time.Time `json:"since"`
}

// NotSlack begins the reason of a Wait for credentials if the responses are not Slack's: the URL leads
// elsewhere.
const NotSlack = "replies do not come from Slack"

// Channel describes the queue of one Slack channel.
type Channel struct {
	Name    string    `json:"name"`            // as the settings name it; "webhook" for the webhook's
	Queued  int       `json:"queued"`          // admitted events that are not posted
	Oldest  time.Time `json:"oldest,omitzero"` // publication of the oldest queued event
	Why     string    `json:"why,omitempty"`   // "slack" or "pace". Empty if nothing delays the queue
	Posting bool      `json:"posting,omitempty"`
	Refused string    `json:"refused,omitempty"` // Slack's code if the channel refuses every message

	Rejected *Rejection `json:"rejected,omitempty"` // nil if Slack accepted the channel's last message
	Accepted time.Time  `json:"accepted,omitzero"`  // last success of this replica
}

// Rejection describes messages in a row that Slack rejected because of their channel.
type Rejection struct {
	Code  string    `json:"code"` // of the last one
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Failing describes an event that is retried after a failed post.
type Failing struct {
	Channel  string    `json:"channel"`
	Category string    `json:"category"`
	EventID  string    `json:"event_id"`
	Error    string    `json:"error"`         // Slack's code for the last post
	Next     time.Time `json:"next,omitzero"` // earliest next post. Zero if only the channel has to recover
}

// Stream describes how full a NATS stream is.
type Stream struct {
	Name        string    `json:"name"`
	Bytes       uint64    `json:"bytes"`
	MaxBytes    int64     `json:"max_bytes,omitempty"` // zero means no bound
	Messages    uint64    `json:"messages"`
	MaxMessages int64     `json:"max_messages,omitempty"` // zero means no bound
	DiscardsOld bool      `json:"discards_old"`           // a full stream deletes its oldest messages, else it refuses new ones
	Unread      *uint64   `json:"unread,omitempty"`       // events no replica has fetched. Nil if unknown
	Stuck       *uint64   `json:"stuck,omitempty"`        // events that the consumer will never deliver. Nil if unknown
	Seen        time.Time `json:"seen,omitzero"`          // last lookup
	Unknown     string    `json:"unknown,omitempty"`      // why the lookup failed
	Withheld    *Withheld `json:"withheld,omitempty"`     // nil if the consumer delivers all events, or is unknown
}

// Withheld describes why a consumer does not deliver all events of its stream to the workers.
type Withheld struct {
	Why  string `json:"why"`            // a clause about the consumer, and the remedy
	None bool   `json:"none,omitempty"` // it delivers no event
}

// Used returns the share of the bound that the stream is nearest to, from 0 to 1, and which one it is:
// "bytes" or "messages". It returns 0 and "" if the stream has no bound or was not looked up.
func (s Stream) Used() (share float64, bound string) {
	if s.MaxBytes > 0 {
		share, bound = float64(s.Bytes)/float64(s.MaxBytes), "bytes"
	}
	if s.MaxMessages > 0 {
		if used := float64(s.Messages) / float64(s.MaxMessages); used >= share {
			share, bound = used, "messages"
		}
	}
	return share, bound
}

// Settings identifies the settings of a worker. None of it is secret.
type Settings struct {
	// Hash identifies all settings that decide about events, as eight hex digits. Workers with equal settings
	// have equal hashes.
	Hash string `json:"hash"`
	// Text maps variables to values: the limits, DEDUPE_WINDOW, SLACK_CHANNEL, SLACK_ROUTES and NATS_SUBJECT. It
	// is nil if it exceeds 16 KiB; then others cannot tell the limits.
	Text map[string]string `json:"text,omitempty"`
}
