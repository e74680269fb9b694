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

// minutesOfHour is how many minutes Hour tells of, the one that is going on included.
const minutesOfHour = 60

// Hour is what all replicas have done in the last hour, by the clock of Redis.
type Hour struct {
	Now time.Time // when it was read
	// Minutes are 60, the oldest first; the last one is going on.
	Minutes []Minute
	// LastSent is when an event of a category was last sent, within the last week: of the 100 categories that were sent
	// last, to about a second.
	LastSent map[string]time.Time
}

// Minute is one minute's counts.
type Minute struct {
	Start  time.Time
	Counts []Count // sorted by category, outcome and reason; none is 0
}

// Count is how many events of a category ended in one way.
type Count struct {
	Category string `json:"category"` // or Other
	Outcome  string `json:"outcome"`
	Reason   string `json:"reason,omitempty"` // empty when sent
	N        int64  `json:"n"`
}

// Sum is the counts of all the minutes together, sorted as a minute's are.
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
		return cmp.Or(cmp.Compare(a.Category, b.Category), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Reason, b.Reason))
	})
}

// Reader reads what the Recorders of all replicas have written. It is safe for concurrent use.
type Reader struct {
	redis redis.UniversalClient
	keys  Keys
	now   *redis.Script
}

// NewReader makes a Reader over an open client; namespace as for ratelimit.New.
func NewReader(client redis.UniversalClient, namespace string) (*Reader, error) {
	keys, err := NewKeys(namespace)
	if err != nil {
		return nil, err
	}
	return &Reader{redis: client, keys: keys, now: redis.NewScript(lua.Now)}, nil
}

// time asks the server that keeps the keys: the nodes of a Cluster have a clock each.
func (r *Reader) time(ctx context.Context) (time.Time, error) {
	micros, err := r.now.Run(ctx, r.redis, []string{r.keys.replicas()}).Int64()
	if err != nil {
		return time.Time{}, fmt.Errorf("redis cannot tell the time: %w", err)
	}
	return time.UnixMicro(micros).UTC(), nil
}

// Hour reads the last hour, in two round trips. An error says that Redis is away, or names the key that holds something
// else than a Recorder writes.
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
	_, _ = pipe.Exec(ctx) // each command tells its own error

	hour := Hour{Now: now, LastSent: map[string]time.Time{}}
	for i, hash := range hashes {
		number := last - minutesOfHour + 1 + int64(i)
		counts, err := decodeCounts(r.keys.counts(number), hash)
		if err != nil {
			return Hour{}, err
		}
		hour.Minutes = append(hour.Minutes, Minute{Start: time.UnixMicro(number * microsPerMinute).UTC(), Counts: counts})
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

// Replicas lists the replicas that were there within the last minute, sorted by id. Errors are Hour's.
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
