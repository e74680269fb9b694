// Package report keeps in Redis how the workers are and how many events ended how, for the status and the
// digest.
//
// Each worker has a Reporter. Observe counts settled events in memory; once a second one pipeline adds the
// counts to hashes that all workers share, and stores a snapshot of the worker as its heartbeat. A Reader
// reads both. Nothing here decides about an event or delays one.
//
// # Promises
//
// A count reaches Redis at most once: a pipeline that failed is not repeated, because a part of it may have
// been carried out. So the counts of an outage are lost, at most a second of them otherwise. The log has every
// event.
//
// Publishers choose the names. In each worker a tally of ten minutes counts 100 categories by name, and 8
// sources of each, together 400; further ones count as outcome.OtherCategories. Every key expires.
//
// All times are by Redis's clock. A worker estimates it from the last reply to lua.Now, so its own clock may
// be hours off.
//
// Readers take nothing for granted: the database may hold anything under these keys. They bound the number
// and the size of entries, and skip those that no Reporter writes.
//
// # Keys
//
// Workers of v0.2.0 may run beside this release; it uses none of these names.
//
//	{notifier}:tally:<number>    hash  "<outcome>/<reason>\t<category>\t<source>" -> events; one for every ten minutes since 1970
//	{notifier}:replica:<id>    string  snapshot.Snapshot as JSON
//	{notifier}:alive           sorted set  id -> millisecond of the last heartbeat
//	{notifier}:digest:<interval in seconds>:<period>  hash  "<reason>\t<category>" -> drops; see package digest
package report

import (
	"strconv"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/snapshot"
)

const (
	// MaxCategories and MaxSources bound the names that one worker counts in ten minutes. MaxSources is for
	// each category.
	MaxCategories = 100
	MaxSources    = 8

	maxAllSources = 400 // of all categories, to keep the hash of many workers below maxFields

	maxNameBytes = 256 // longer names count as outcome.OtherCategories

	// TallyLength is the time that one tally covers.
	TallyLength = 10 * time.Minute
	hourTallies = 6
	tallyLife   = 2 * time.Hour // after the last count

	heartbeatLife = time.Minute     // a worker with an older heartbeat has ended
	silent        = 5 * time.Second // fewer heartbeats can be missed when NATS or Redis is slow
	replicaLife   = time.Hour       // of an id without a heartbeat

	maxReplicas      = 200
	maxIDBytes       = 200
	maxSnapshotBytes = 64 << 10
	maxEntries       = 1000   // of each list in a snapshot
	maxHeld          = 1e9    // events that a snapshot counts
	maxFields        = 20_000 // of one hash
	maxCount         = 1e15   // of one field
)

// Report describes the workers and the last hour.
type Report struct {
	Now      time.Time // Redis's clock
	Replicas []Replica // sorted by ID; heartbeats younger than a minute
	More     int       // workers beyond the bound of 200
	Since    time.Time // the counts cover the time from Since to Now, 50 to 60 minutes
	Counts   []Count   // sorted by category, outcome, reason, source
	Skipped  int       // tallies of ten minutes that Counts leaves out, because they have too many names
}

// Replica is a worker with a heartbeat in the last minute.
type Replica struct {
	Snapshot snapshot.Snapshot // its times are by Redis's clock, too
	Seen     time.Time         // last heartbeat, by Redis's clock
	Silent   bool              // no heartbeat for five seconds or more
}

// Count counts events of one category that ended alike.
type Count struct {
	Category string // as outcome.CategoryName returns it, or outcome.OtherCategories; empty if invalid
	Outcome  string
	Reason   string // empty if sent
	Source   string // empty if the publisher named none; outcome.OtherCategories for sources past the eighth
	N        int64  // above 0
}

// Drop counts events of one category that a limit refused, or a mute.
type Drop struct {
	Reason   string // global, group, category or muted
	Category string // as in Count
	N        int64  // above 0
}

// keys is the prefix of all keys. The braces keep the keys of a namespace in one slot of a Cluster.
type keys string

func newKeys(namespace string) (keys, error) {
	if err := ratelimit.ValidateNamespace(namespace); err != nil {
		return "", err
	}
	return keys("{" + namespace + "}:"), nil
}

func (k keys) replicas() string         { return string(k) + "alive" }
func (k keys) replica(id string) string { return string(k) + "replica:" + id }

func (k keys) tally(number int64) string { return string(k) + "tally:" + strconv.FormatInt(number, 10) }

func (k keys) drops(interval time.Duration, period int64) string {
	seconds := strconv.FormatFloat(interval.Seconds(), 'f', -1, 64)
	return string(k) + "digest:" + seconds + ":" + strconv.FormatInt(period, 10)
}

// Period returns the number of the period of an interval that a time belongs to. The interval is at least a
// millisecond.
func Period(at time.Time, interval time.Duration) int64 {
	return at.UnixMilli() / interval.Milliseconds()
}

// PeriodStart returns the start of a period.
func PeriodStart(period int64, interval time.Duration) time.Time {
	return time.UnixMilli(period * interval.Milliseconds()).UTC()
}
