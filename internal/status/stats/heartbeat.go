package stats

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// gone is the age at which a heartbeat no longer counts: its replica has ended.
	gone = time.Minute
	// silent is the age at which its replica has missed five heartbeats: it has ended, hangs or is cut off.
	// Fewer can be missed when NATS or Redis is slow.
	silent = 5 * time.Second
)

// Heartbeat is what a replica reports about itself at each flush.
type Heartbeat struct {
	// Settings are what the replica runs with. They are not named settings, where replicas of v0.1.0 have a
	// text.
	Settings Settings  `json:"config,omitzero"`
	Started  time.Time `json:"started"`
	Version  string    `json:"version"`
	Ready    bool      `json:"ready"`
	Held     int       `json:"held"`           // events in flight
	Dead     int       `json:"dead,omitempty"` // how many of these wait until their dead letters are stored
	Waits    []Wait    `json:"waits,omitempty"`
	// Unposted are the channels for which admitted events wait.
	Unposted []Unposted `json:"unposted,omitempty"`
	// Failing are a few of the events on which Slack keeps failing.
	Failing []Failing `json:"failing,omitempty"`
	// Refused are the channels that refuse every message of this replica, each with Slack's code.
	Refused map[string]string `json:"refused_channels,omitempty"`
	// Steering is the version of what operators have asked for that the replica follows; 0: nothing.
	Steering int64 `json:"steering,omitempty"`
	// Streams are the streams that can become full, as the replica has last seen them.
	Streams []Stream `json:"streams,omitempty"`
}

// Settings are what a replica shows of its settings, so that replicas can be compared. None of it is secret.
type Settings struct {
	Values map[string]string `json:"values,omitempty"` // the limits and what the replica reads, by variable
	Others string            `json:"others,omitempty"` // a hash of the other settings
}

// IsZero reports whether the replica shows nothing, as those of v0.1.0 do.
func (s Settings) IsZero() bool { return len(s.Values) == 0 && s.Others == "" }

// Values of Stream.Bound.
const (
	BoundBytes    = "bytes"
	BoundMessages = "messages"
)

// Stream is how full a stream of NATS is.
type Stream struct {
	Name string `json:"stream"`
	// of the bound that it is nearest to, from 0 to 1; 0 where it has none, or where that is not known
	Used float64 `json:"used_ratio"`
	// which one: bytes or messages; empty: it has none, or that is not known
	Bound       string `json:"bound,omitempty"`
	Bytes       uint64 `json:"bytes"`
	MaxBytes    int64  `json:"max_bytes,omitempty"` // 0: any number
	Messages    uint64 `json:"messages"`
	MaxMessages int64  `json:"max_messages,omitempty"` // 0: any number
	// a full one deletes its oldest messages, else it refuses new ones
	DiscardsOld bool      `json:"discards_old"`
	Seen        time.Time `json:"seen"`              // when it was looked up, by the clock of the replica
	Unknown     string    `json:"unknown,omitempty"` // why nothing of this is known; empty: it is
}

// Wait is something that a replica waits for, in the same words as in its log.
type Wait struct {
	For string `json:"for"`
	// the Slack channel that takes no posts; empty: it concerns all events
	Channel string `json:"channel,omitempty"`
	Reason  string `json:"reason"`
	// of the trouble with Redis, see TroubleKind; empty: it waits for something else
	Kind  string    `json:"kind,omitempty"`
	Since time.Time `json:"since,omitzero"`
}

// Text is the reason for people, with the channel that it is about: "#alerts: Slack asked to wait 12 s".
func (w Wait) Text() string {
	if w.Channel == "" {
		return w.Reason
	}
	return w.Channel + ": " + strings.TrimPrefix(w.Reason, w.For+": ")
}

// Unposted is what waits for one Slack channel in one replica: admitted, and not posted yet.
type Unposted struct {
	Channel string    `json:"channel"`
	Events  int       `json:"events"`
	Parked  int       `json:"parked,omitempty"` // how many of these were given back to NATS for a while
	Oldest  time.Time `json:"oldest"`           // when the oldest was published
	Why     string    `json:"why,omitempty"`    // slack, pace; empty: nothing keeps them
}

// Failing is an event that is tried again and again.
type Failing struct {
	Channel  string `json:"channel"` // as in Wait
	Category string `json:"category"`
	EventID  string `json:"event_id"`
	Error    string `json:"error"` // Slack's code at its last post
	// of its next post, at the earliest; zero: when its channel takes posts
	Next time.Time `json:"next,omitzero"`
}

// waitDeadLetter is the Wait.For with which only dead events wait.
const waitDeadLetter = "dead_letter"

// HeldFor is how many events a wait holds up.
func (h Heartbeat) HeldFor(wait Wait) int {
	switch {
	case wait.For == waitDeadLetter:
		return h.Dead
	case wait.Channel == "":
		return h.everything()
	}
	for _, u := range h.Unposted {
		if u.Channel == wait.Channel {
			return u.Events
		}
	}
	return 0
}

// HeldEvents is how many events of the replica wait for something, each counted once.
func (h Heartbeat) HeldEvents() int {
	held := 0
	for _, wait := range h.Waits {
		switch {
		case wait.For == waitDeadLetter:
			held += h.Dead
		case wait.Channel == "":
			return h.everything()
		}
	}
	for _, u := range h.Unposted {
		if u.Why != "" {
			held += u.Events
		}
	}
	return held
}

// everything is what is in flight, and what was given back to NATS for a while.
func (h Heartbeat) everything() int {
	all := h.Held
	for _, u := range h.Unposted {
		all += u.Parked
	}
	return all
}

// Running are the replicas that are not silent.
func Running(replicas []Replica) []Replica {
	return slices.DeleteFunc(slices.Clone(replicas), func(r Replica) bool { return r.Silent })
}

// Replica is a replica that has reported in the last minute.
type Replica struct {
	ID   string    `json:"id"`
	Seen time.Time `json:"seen"` // its last heartbeat, by the clock of Redis
	// Silent: it has missed heartbeats. Who runs is decided here alone. Such a replica is not ready, and nothing
	// else of what it did then is known.
	Silent bool `json:"silent,omitempty"`
	Heartbeat
}

// decodeReplicas decodes the hash of heartbeats as it was at the time now, without those older than a minute,
// sorted by id.
func decodeReplicas(key string, fields map[string]string, now time.Time) ([]Replica, error) {
	replicas := make([]Replica, 0, len(fields))
	for id, value := range fields {
		seen, content, found := strings.Cut(value, " ")
		micros, err := strconv.ParseInt(seen, 10, 64)
		if !found || err != nil {
			return nil, fmt.Errorf(
				"redis: %s: replica %q has %.60q, expected a time in microseconds and a heartbeat",
				key,
				id,
				value,
			)
		}
		replica := Replica{ID: id, Seen: time.UnixMicro(micros).UTC()}
		if now.Sub(replica.Seen) >= gone {
			continue
		}
		// It was written before the clock was set back. It must not make the others look old.
		if replica.Seen.After(now) {
			replica.Seen = now
		}
		if err := json.Unmarshal([]byte(content), &replica.Heartbeat); err != nil {
			return nil, fmt.Errorf("redis: %s: heartbeat of replica %q: %w", key, id, err)
		}
		if replica.Silent = now.Sub(replica.Seen) >= silent; replica.Silent {
			known := replica.Heartbeat
			replica.Heartbeat = Heartbeat{
				Settings: known.Settings,
				Started:  known.Started,
				Version:  known.Version,
				Steering: known.Steering,
			}
		}
		replicas = append(replicas, replica)
	}
	slices.SortFunc(replicas, func(a, b Replica) int { return cmp.Compare(a.ID, b.ID) })
	return replicas, nil
}
