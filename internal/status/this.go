package status

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"notifier/internal/stats"
	"notifier/internal/term"
)

// This is what one worker knows by itself, whatever Redis says.
type This struct {
	Replica  string            `json:"replica"`
	Host     string            `json:"host"`
	Version  string            `json:"version"`
	Time     time.Time         `json:"time"` // by the clock of its machine, as are all times here
	UptimeS  float64           `json:"uptime_s"`
	Ready    bool              `json:"ready"`     // when it was last asked, about a second ago
	InFlight int               `json:"in_flight"` // events that have arrived and are not settled
	Posting  int               `json:"posting"`   // of these, how many are being posted
	Held     int               `json:"held"`      // events that wait for something, each counted once
	HeldFor  map[string]int    `json:"held_for"`  // for what; an event may wait for several things. Those for which nothing waits are left out
	Waits    []stats.Wait      `json:"waits"`     // what is unavailable, and since when
	Unposted []Unposted        `json:"unposted"`  // by channel; of those for which admitted events wait
	Paused   []PausedChannel   `json:"paused"`    // channels to which it posts nothing for a while
	Refused  map[string]string `json:"refused_channels,omitempty"`
	LastSent *time.Time        `json:"last_sent"` // null: nothing since it was started
	Redis    Redis             `json:"redis"`
	Streams  []stats.Stream    `json:"streams"`

	Beat stats.Heartbeat `json:"-"` // what it reports of itself now
}

// PausedChannel is a channel to which a worker posts nothing for a while.
type PausedChannel struct {
	Channel string  `json:"channel"`
	LeftS   float64 `json:"left_s"`
}

// What Redis does for a worker.
const (
	RedisOK          = "ok"
	RedisCountsOnly  = "counts_only" // it does not store the counts; decisions are not known to be refused
	RedisRefuses     = "refuses"     // it answers, and refuses decisions: nothing is sent
	RedisUnavailable = "unavailable" // it does not answer: nothing is sent
)

// Redis is what Redis does for a worker.
type Redis struct {
	State  string     `json:"state"`            // ok, counts_only, refuses, unavailable
	Kind   string     `json:"kind,omitempty"`   // of the trouble, see stats.TroubleKind; empty: none
	Since  *time.Time `json:"since,omitempty"`  // by the clock of the worker's machine
	Reason string     `json:"reason,omitempty"` // the latest error
	Text   string     `json:"text,omitempty"`   // for people, without a time
}

// kindTexts is what the trouble is, for people.
var kindTexts = map[string]string{
	stats.Full:        "Redis is full (maxmemory)",
	stats.ReadOnly:    "Redis is read-only, it is a replica",
	stats.NotSaving:   "Redis takes no writes, because it cannot save to its disk",
	stats.NoReplicas:  "Redis takes no writes, because too few of its replicas are connected",
	stats.Loading:     "Redis is loading its data",
	stats.Denied:      "Redis refuses the user of this worker",
	stats.WrongKey:    "a key in Redis holds what notifier does not write",
	stats.Unreachable: "Redis is unavailable",
}

// RedisOf is what Redis does for a worker that waits for these, which are not ready for these reasons, and whose counts have this
// trouble, or nil. refused is the error with which the scripts were refused when the worker was last asked whether it is ready;
// empty: they were not.
func RedisOf(waits []stats.Wait, refused string, trouble *stats.Trouble) Redis {
	for _, wait := range waits {
		if wait.For == waitRedis {
			return refusing(cmp.Or(wait.Kind, stats.TroubleKind(wait.Reason)), wait.Reason, wait.Since)
		}
	}
	switch {
	case trouble == nil:
		return Redis{State: RedisOK}
	case refused != "" || trouble.Kind == stats.Unreachable || trouble.Kind == stats.Loading:
		return refusing(trouble.Kind, trouble.Reason, trouble.Since)
	case trouble.Kind != stats.Full && stats.RefusesWrites(trouble.Kind):
		return refusing(trouble.Kind, trouble.Reason, trouble.Since) // who refuses one write refuses all
	}
	since := trouble.Since.UTC()
	text := kindTexts[trouble.Kind] + ": counts are not stored; no decision was refused"
	return Redis{State: RedisCountsOnly, Kind: trouble.Kind, Since: &since, Reason: trouble.Reason, Text: text}
}

// waitRedis is the Wait.For with which nothing is decided.
const waitRedis = "redis"

func refusing(kind, reason string, since time.Time) Redis {
	since = since.UTC()
	state := RedisUnavailable
	if kind != stats.Unreachable && kind != stats.Loading {
		state = RedisRefuses
	}
	return Redis{State: state, Kind: kind, Since: &since, Reason: reason, Text: kindTexts[kind] + ": nothing is sent"}
}

// Unknown is what a worker answers where Redis does not: the error, what it knows by itself, and what it does not.
type Unknown struct {
	Error   string    `json:"error"`
	Kind    string    `json:"kind"` // see stats.TroubleKind
	Text    string    `json:"text"` // the same for people, without a time
	Time    time.Time `json:"time"` // by the clock of the worker's machine
	This    *This     `json:"this"`
	Unknown []string  `json:"unknown"` // fields of Status that are left out
}

// unknownFields are the fields of Status that only Redis has.
var unknownFields = []string{
	"global", "groups", "categories", "reserves", "slots", "holders", "outcomes_last_hour", "slack_pauses", "held", "unposted",
	"replicas", "steering", "settings",
}

// NotKnown is the answer of a worker that cannot read the status, for the reason err.
func NotKnown(err error, this *This) Unknown {
	kind := stats.TroubleKind(err.Error())
	return Unknown{
		Error: err.Error(), Kind: kind, Text: kindTexts[kind], Time: time.Now().UTC(), This: this, Unknown: unknownFields,
	}
}

// withThis puts what a worker reports of itself now in the place of its heartbeat, which may be old, or not have been stored at
// all. now is by the clock of Redis.
func withThis(replicas []stats.Replica, this *This, now time.Time) []stats.Replica {
	if this == nil {
		return replicas
	}
	own := stats.Replica{ID: this.Replica, Seen: now, Heartbeat: this.Beat}
	at := slices.IndexFunc(replicas, func(r stats.Replica) bool { return r.ID == this.Replica })
	if at >= 0 {
		replicas[at] = own
		return replicas
	}
	replicas = append(replicas, own)
	slices.SortFunc(replicas, func(a, b stats.Replica) int { return cmp.Compare(a.ID, b.ID) })
	return replicas
}

// silentAfter is the age at which a heartbeat is worth a line: ten were missed. After a minute the replica is gone.
const silentAfter = missed

// silent are lines about replicas that have not reported for a while, the longest silent one first, so many at most.
func (s Status) silent(most int) []string {
	var quiet []stats.Replica
	for _, replica := range s.Replicas {
		if s.Time.Sub(replica.Seen) >= silentAfter {
			quiet = append(quiet, replica)
		}
	}
	slices.SortStableFunc(quiet, func(a, b stats.Replica) int { return a.Seen.Compare(b.Seen) })
	var lines []string
	for _, replica := range quiet[:min(len(quiet), most)] {
		lines = append(lines, fmt.Sprintf("Replica %s has not reported for %s.", replica.ID, term.Duration(s.Time.Sub(replica.Seen))))
	}
	if len(quiet) > most {
		lines = append(lines, fmt.Sprintf("Nor has anything been heard of %s.", term.Count(len(quiet)-most, "more replica")))
	}
	return lines
}
