package status

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"notifier/internal/status/stats"
)

// This is what one worker knows by itself, whatever Redis says.
type This struct {
	Replica  string    `json:"replica"`
	Host     string    `json:"host"`
	Version  string    `json:"version"`
	Time     time.Time `json:"time"` // by the clock of its machine, as are all times here
	UptimeS  float64   `json:"uptime_s"`
	Ready    bool      `json:"ready"`     // when it was last asked, about a second ago
	InFlight int       `json:"in_flight"` // events that have arrived and are not settled
	Posting  int       `json:"posting"`   // of these, how many are being posted
	Held     int       `json:"held"`      // events that wait for something, each counted once
	// for what; an event may wait for several things. Those for which nothing waits are left out
	HeldFor  map[string]int    `json:"held_for"`
	Waits    []stats.Wait      `json:"waits"`    // what is unavailable, and since when
	Unposted []Unposted        `json:"unposted"` // by channel; of those for which admitted events wait
	Paused   []PausedChannel   `json:"paused"`   // channels to which it posts nothing for a while
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

// RedisOf is what Redis does for a worker that waits for these, which are not ready for these reasons, and
// whose counts have this trouble, or nil. refused is the error with which the scripts were refused when the
// worker was last asked whether it is ready; empty: they were not.
func RedisOf(waits []stats.Wait, refused string, trouble *stats.Trouble) Redis {
	for _, wait := range waits {
		if wait.For == waitRedis {
			return refusing(cmp.Or(wait.Kind, stats.TroubleKind(wait.Reason)), wait.Reason, wait.Since)
		}
	}
	switch {
	case trouble == nil:
		return Redis{State: RedisOK}
	case refused != "", trouble.Kind == stats.Unreachable, trouble.Kind == stats.Loading,
		trouble.Kind != stats.Full && stats.RefusesWrites(trouble.Kind): // who refuses one write refuses all
		return refusing(trouble.Kind, trouble.Reason, trouble.Since)
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
	return Redis{
		State:  state,
		Kind:   kind,
		Since:  &since,
		Reason: reason,
		Text:   kindTexts[kind] + ": nothing is sent",
	}
}

// redisOf is what Redis does for a worker, or for all of them where none reads. refused is the error with
// which it takes no writes at the moment; nil: it takes them.
func redisOf(this *This, refused error) Redis {
	known := Redis{State: RedisOK}
	if this != nil {
		known = this.Redis
	}
	if refused != nil && (known.State == RedisOK || known.State == RedisCountsOnly) {
		since := known.Since
		known = refusing(stats.TroubleKind(refused.Error()), refused.Error(), time.Time{})
		known.Since = since
	}
	return known
}

// Unknown is what a worker answers where Redis does not: the error, what it knows by itself, and what it does
// not.
type Unknown struct {
	Error   string    `json:"error"`
	Summary Summary   `json:"summary"`
	Kind    string    `json:"kind"` // see stats.TroubleKind
	Text    string    `json:"text"` // the same for people, without a time
	Time    time.Time `json:"time"` // by the clock of the worker's machine
	This    *This     `json:"this"`
	Unknown []string  `json:"unknown"` // fields of Status that are left out
}

// unknownFields are the fields of Status that only Redis has.
var unknownFields = []string{
	"global",
	"groups",
	"categories",
	"reserves",
	"slots",
	"holders",
	"outcomes_last_hour",
	"slack_pauses",
	"held",
	"unposted",
	"replicas",
	"steering",
	"settings",
}

// RedisTrouble is what is wrong with Redis by one of its errors, as a kind of stats.TroubleKind and for
// people.
func RedisTrouble(err error) (kind, text string) {
	kind = stats.TroubleKind(err.Error())
	return kind, kindTexts[kind]
}

// NotKnown is the answer of a worker that cannot read the status, for the reason err.
func NotKnown(err error, this *This) Unknown {
	kind, text := RedisTrouble(err)
	return Unknown{
		Error: err.Error(), Summary: this.summary(err, kind), Kind: kind, Text: text,
		Time: time.Now().UTC(), This: this, Unknown: unknownFields,
	}
}

// summary is what a worker knows by itself, where the status cannot be read for the reason err.
func (t *This) summary(err error, kind string) Summary {
	own := stats.Replica{ID: t.Replica, Seen: t.Time, Heartbeat: t.Beat}
	known := Status{Time: t.Time, Replicas: []stats.Replica{own}, Unposted: t.Unposted, Held: t.Held}
	v := view{Status: known, redis: t.Redis}
	for _, stream := range t.Streams {
		v.Streams = append(v.Streams, Stream{Stream: stream, Text: streamText(stream)})
	}
	s := v.summary()
	if s.Level != LevelBad {
		text := fmt.Sprintf("The status cannot be read: %s. This worker goes on.%s", kindTexts[kind], v.heldText())
		s = Summary{
			Kind:      "unread " + kind,
			Level:     LevelBad,
			Title:     "status unknown",
			Text:      text,
			Attention: s.Attention,
		}
	}
	s.Attention = append([]Attention{{Kind: "error", Level: LevelBad, Text: err.Error()}}, s.Attention...)
	return s
}

// withThis puts what a worker reports of itself now in the place of its heartbeat, which may be old, or not
// have been stored at all. now is by the clock of Redis.
func withThis(replicas []stats.Replica, this *This, now time.Time) []stats.Replica {
	if this == nil {
		return replicas
	}
	own := stats.Replica{ID: this.Replica, Seen: now, Heartbeat: this.Beat}
	replicas = append(
		slices.DeleteFunc(replicas, func(r stats.Replica) bool { return r.ID == this.Replica }),
		own,
	)
	slices.SortFunc(replicas, func(a, b stats.Replica) int { return cmp.Compare(a.ID, b.ID) })
	return replicas
}
