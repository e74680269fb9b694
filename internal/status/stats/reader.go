package stats

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/lua"
)

// minutesOfHour is how many minutes Hour has, including the current one.
const minutesOfHour = 60

// Hour is what all replicas have done in the last hour, by the clock of Redis.
type Hour struct {
	Now time.Time // when it was read
	// Minutes are 60, the oldest first; the last one is the current minute.
	Minutes []Minute
	// LastSent is when an event of each category was last sent, to about a second: within the last week, for the
	// 100 categories with the most recent times.
	LastSent map[string]time.Time
	Sources  []SourceSlot // of the last hour, the oldest first; the last one is not over
}

// Minute is one minute's counts.
type Minute struct {
	Start  time.Time
	Counts []Count // sorted by category, outcome and reason; none is 0
}

// Count is how many events of a category ended in one way.
type Count struct {
	Category string `json:"category"` // as outcome.CategoryName returns it, or OtherCategory
	Outcome  string `json:"outcome"`
	Reason   string `json:"reason,omitempty"` // empty if sent
	N        int64  `json:"n"`
}

// Sum returns the counts of all minutes together, sorted like those of a minute.
func (h Hour) Sum() []Count {
	sums := map[Count]int64{}
	for _, minute := range h.Minutes {
		for _, c := range minute.Counts {
			n := c.N
			c.N = 0
			sums[c] += n
		}
	}
	counts := make([]Count, 0, len(sums))
	for c, n := range sums {
		c.N = n
		counts = append(counts, c)
	}
	sortCounts(counts)
	return counts
}

func sortCounts(counts []Count) {
	slices.SortFunc(counts, func(a, b Count) int {
		if byCategory := strings.Compare(a.Category, b.Category); byCategory != 0 { // as mostly
			return byCategory
		}
		return cmp.Or(strings.Compare(a.Outcome, b.Outcome), strings.Compare(a.Reason, b.Reason))
	})
}

// Reader reads what the Recorders of all replicas have written. It is safe for concurrent use.
type Reader struct {
	redis redis.UniversalClient
	keys  Keys
	now   *redis.Script
}

// NewReader returns a Reader that uses an open client; namespace as for ratelimit.New.
func NewReader(client redis.UniversalClient, namespace string) (*Reader, error) {
	keys, err := NewKeys(namespace)
	if err != nil {
		return nil, err
	}
	return &Reader{redis: client, keys: keys, now: redis.NewScript(lua.Now)}, nil
}

// time asks the server that holds the keys: each node of a Cluster has its own clock.
func (r *Reader) time(ctx context.Context) (time.Time, error) {
	micros, err := r.now.Run(ctx, r.redis, []string{r.keys.replicas()}).Int64()
	if err != nil {
		return time.Time{}, fmt.Errorf("redis: cannot read the time: %w", err)
	}
	return time.UnixMicro(micros).UTC(), nil
}

// writes is a script that says that it may write, and writes nothing: a server that takes no writes refuses
// to run it.
const writes = "#!lua\nreturn 1"

// Refuses is the error with which Redis refuses all writes at the moment, and so each decision: it is full, a
// replica, or waits for its disk or its replicas. Nil: it takes writes, or that is not known.
func (r *Reader) Refuses(ctx context.Context) error {
	err := r.redis.Eval(ctx, writes, []string{r.keys.replicas()}).Err()
	if err == nil || !RefusesWrites(TroubleKind(err.Error())) {
		return nil
	}
	return err
}

// Hour reads the last hour, in two round trips. An error means that Redis is unavailable, or names a key
// whose content was not written by a Recorder.
func (r *Reader) Hour(ctx context.Context) (Hour, error) {
	now, err := r.time(ctx)
	if err != nil {
		return Hour{}, err
	}
	last := now.UnixMicro() / microsPerMinute
	pipe := r.redis.Pipeline()
	hashes := make([]*redis.MapStringStringCmd, minutesOfHour)
	for i := range hashes {
		hashes[i] = pipe.HGetAll(ctx, r.keys.counts(last-minutesOfHour+1+int64(i)))
	}
	sent := pipe.ZRangeWithScores(ctx, r.keys.lastSent(), 0, -1)
	sources := r.askSources(ctx, pipe, now, hourSlots)
	_, _ = pipe.Exec(ctx) // each command has its own error

	hour := Hour{Now: now, LastSent: map[string]time.Time{}}
	for i, hash := range hashes {
		number := last - minutesOfHour + 1 + int64(i)
		counts, err := decodeCounts(r.keys.counts(number), hash)
		if err != nil {
			return Hour{}, err
		}
		hour.Minutes = append(
			hour.Minutes,
			Minute{Start: time.UnixMicro(number * microsPerMinute).UTC(), Counts: counts},
		)
	}
	if hour.Sources, err = sources(); err != nil {
		return Hour{}, err
	}
	entries, err := sent.Result()
	if err != nil {
		return Hour{}, fmt.Errorf("redis: %s: %w", r.keys.lastSent(), err)
	}
	for _, entry := range entries {
		if category, ok := entry.Member.(string); ok {
			hour.LastSent[category] = time.UnixMicro(int64(entry.Score)).UTC()
		}
	}
	return hour, nil
}

// Sources reads who has caused the events of the last hour and up to ten minutes more, the oldest ten minutes
// first. Errors are as for Hour.
func (r *Reader) Sources(ctx context.Context) ([]SourceSlot, error) {
	now, err := r.time(ctx)
	if err != nil {
		return nil, err
	}
	pipe := r.redis.Pipeline()
	sources := r.askSources(ctx, pipe, now, readSlots)
	_, _ = pipe.Exec(ctx) // each command has its own error
	return sources()
}

// askSources puts the commands for the last slots into a pipeline; read decodes the answers.
func (r *Reader) askSources(
	ctx context.Context,
	pipe redis.Pipeliner,
	now time.Time,
	slots int64,
) (read func() ([]SourceSlot, error)) {
	first := now.UnixMicro()/microsPerSlot - slots + 1
	hashes := make([]*redis.MapStringStringCmd, slots)
	for i := range hashes {
		hashes[i] = pipe.HGetAll(ctx, r.keys.sources(first+int64(i)))
	}
	return func() ([]SourceSlot, error) {
		read := make([]SourceSlot, 0, slots)
		for i, hash := range hashes {
			number := first + int64(i)
			counts, err := decodeSources(r.keys.sources(number), hash)
			if err != nil {
				return nil, err
			}
			start := time.UnixMicro(number * microsPerSlot).UTC()
			read = append(read, SourceSlot{Start: start, End: start.Add(slotMinutes * time.Minute), Counts: counts})
		}
		return read, nil
	}
}

const microsPerSlot = slotMinutes * microsPerMinute

func decodeCounts(key string, hash *redis.MapStringStringCmd) ([]Count, error) {
	fields, err := hash.Result()
	if err != nil {
		return nil, fmt.Errorf("redis: %s: %w", key, err)
	}
	counts := make([]Count, 0, len(fields))
	for field, value := range fields {
		parts := strings.SplitN(field, "/", 3)
		if len(parts) != 3 || parts[0] == "" {
			return nil, fmt.Errorf("redis: %s: field %.80q, expected outcome/reason/category", key, field)
		}
		n, err := parseCount(value)
		if err != nil {
			return nil, fmt.Errorf("redis: %s: field %.80q: %w", key, field, err)
		}
		counts = append(counts, Count{Category: parts[2], Outcome: parts[0], Reason: parts[1], N: n})
	}
	sortCounts(counts)
	return counts, nil
}

// Replicas lists the replicas with a heartbeat within the last minute, sorted by id. Errors are as for Hour.
func (r *Reader) Replicas(ctx context.Context) ([]Replica, error) {
	now, err := r.time(ctx)
	if err != nil {
		return nil, err
	}
	fields, err := r.redis.HGetAll(ctx, r.keys.replicas()).Result()
	if err != nil {
		return nil, fmt.Errorf("redis: %s: %w", r.keys.replicas(), err)
	}
	return decodeReplicas(r.keys.replicas(), fields, now)
}
