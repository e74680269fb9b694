// Package status puts together the state of a running notifier: the conditions that are not ok, how full the
// limits are, the workers, the mutes and temporary limits, and one sentence over all of it.
//
// Everything comes from Redis: the snapshots that workers store there as heartbeats, the counts of the last
// hour, the logs of the limiter. So "notifier status" works while every worker is down, and a command and all
// workers show the same. A worker adds its own snapshot, which is newer than its heartbeat and the only
// source of conditions while Redis is down.
//
// The package decides nothing. Whether an event would be sent comes from a dry run of the admission script.
// Each condition has one function over a view, and the sentence follows from the worst condition, so text,
// JSON and page cannot disagree. Missing data is reported as unknown, never as zero or as fine.
//
// Names, reasons and numbers in Redis are untrusted. Lists are capped, texts are cut, and an invalid entry is
// skipped. Renderers escape the rest.
package status

import "time"

// Level is the severity of a condition.
type Level string

// Levels, the worst last.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Fail Level = "fail"
)

func (l Level) rank() int {
	switch l {
	case Fail:
		return 2
	case Warn:
		return 1
	}
	return 0
}

// Caps of the lists.
const (
	maxConditions = 50
	maxCategories = 100
	maxGroups     = 50
	maxReplicas   = 50
	maxOverrides  = 50
)

// State is the state of all workers together: the JSON of "notifier status" and /api/status.
type State struct {
	Time       time.Time   `json:"time"` // Redis's clock, or this machine's if Redis does not reply
	State      Level       `json:"state"`
	Summary    string      `json:"summary"`
	Conditions []Condition `json:"conditions"` // worst first, one of each type; none is ok
	Limits     []Limit     `json:"limits"`     // global first, then groups, then categories, fullest first
	Replicas   []Replica   `json:"replicas"`   // newest first
	Overrides  []Override  `json:"overrides"`  // newest first
	Omitted    Omitted     `json:"omitted,omitzero"`

	unreadable    error
	refusesWrites bool // Redis takes no heartbeats
}

// Unreadable returns the error that kept the workers from being read, or nil. The other conditions of an
// unreadable State come from the reading worker alone; a command has no others.
func (s State) Unreadable() error { return s.unreadable }

// Condition is something that is not as it should be.
type Condition struct {
	Type    string    `json:"type"` // nats, consumer, redis, slack, channel/NAME, workers, settings, stream/NAME, dead, clock
	State   Level     `json:"state"`
	Since   time.Time `json:"since,omitzero"` // zero if unknown
	Message string    `json:"message"`
}

// Limit is one tier of the limit of a scope.
type Limit struct {
	Scope     string    `json:"scope"` // global, group/NAME or category/NAME
	Limit     string    `json:"limit"` // the tier
	Used      int       `json:"used"`
	Max       int       `json:"max"`
	FreeAt    time.Time `json:"free_at,omitzero"` // when an event of one slot fits. Zero if it fits now
	AtLeast   bool      `json:"at_least"`         // FreeAt is a lower bound
	Sent1h    int64     `json:"sent_1h"`          // of the scope, in the last 50 to 60 minutes
	Dropped1h int64     `json:"dropped_1h"`
}

// Replica is one worker.
type Replica struct {
	ID       string    `json:"id"`
	State    string    `json:"state"` // ready, waiting or silent
	Held     int       `json:"held"`
	Version  string    `json:"version"`
	Settings string    `json:"settings"` // hash
	Seen     time.Time `json:"seen"`     // last heartbeat
}

// States of a Worker.
const (
	ready   = "ready"
	waiting = "waiting" // not ready
	silent  = "silent"  // no heartbeat for some seconds
)

// Override is a mute or a temporary limit.
type Override struct {
	Kind   string    `json:"kind"` // mute or limit
	Name   string    `json:"name"` // the pattern of a mute, the scope of a limit
	Limit  string    `json:"limit,omitempty"`
	Until  time.Time `json:"until"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
}

// Omitted counts the entries that the caps left out.
type Omitted struct {
	Conditions int `json:"conditions,omitempty"`
	Limits     int `json:"limits,omitempty"` // groups and categories; an upper bound if there are over 1,000
	Replicas   int `json:"replicas,omitempty"`
	Overrides  int `json:"overrides,omitempty"`

	// Minutes of the last hour that no count covers, because there are too many names.
	Minutes int `json:"minutes,omitempty"`
	// Events of the last hour that only the counts of the global limit have: too many categories had events.
	Events int64 `json:"events,omitempty"`
}
