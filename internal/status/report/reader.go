package report

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/outcome"
	"notifier/internal/snapshot"
	"notifier/lua"
)

// Reader reads the reports of all workers. It is safe for concurrent use.
type Reader struct {
	redis redis.UniversalClient
	keys  keys
	now   *redis.Script
}

// NewReader returns a Reader that uses an open client. The namespace is as for ratelimit.New.
func NewReader(client redis.UniversalClient, namespace string) (*Reader, error) {
	keys, err := newKeys(namespace)
	if err != nil {
		return nil, err
	}
	return &Reader{redis: client, keys: keys, now: redis.NewScript(lua.Now)}, nil
}

// Now reads Redis's clock, on the node that has the keys.
func (r *Reader) Now(ctx context.Context) (time.Time, error) {
	micros, err := r.now.Run(ctx, r.redis, []string{r.keys.replicas()}).Int64()
	if err != nil {
		return time.Time{}, fmt.Errorf("redis: cannot read the time: %w", err)
	}
	return time.UnixMicro(micros).UTC(), nil
}

// Read reads the workers and the counts of the last hour. An error means that Redis is unavailable or refuses
// the user.
func (r *Reader) Read(ctx context.Context) (Report, error) {
	now, err := r.Now(ctx)
	if err != nil {
		return Report{}, err
	}
	last := Period(now, TallyLength)
	tallies := make([]string, hourTallies)
	for i := range tallies {
		tallies[i] = r.keys.tally(last - hourTallies + 1 + int64(i))
	}
	report := Report{Now: now, Since: PeriodStart(last-hourTallies+1, TallyLength)}
	if report.Replicas, report.More, err = r.replicas(ctx, now); err != nil {
		return Report{}, err
	}
	fields, skipped, err := r.fields(ctx, tallies)
	if err != nil {
		return Report{}, err
	}
	report.Counts, report.Skipped = sum(fields), skipped
	return report, nil
}

// Replicas reads the workers alone. Errors are as for Read.
func (r *Reader) Replicas(ctx context.Context) ([]Replica, error) {
	now, err := r.Now(ctx)
	if err != nil {
		return nil, err
	}
	replicas, _, err := r.replicas(ctx, now)
	return replicas, err
}

// Different counts the different settings of the running workers. Errors are as for Read.
func (r *Reader) Different(ctx context.Context) (int, error) {
	replicas, err := r.Replicas(ctx)
	hashes := map[string]bool{}
	for _, replica := range replicas {
		if !replica.Silent {
			hashes[replica.Snapshot.Settings.Hash] = true
		}
	}
	return len(hashes), err
}

func (r *Reader) replicas(ctx context.Context, now time.Time) (replicas []Replica, more int, err error) {
	// A heartbeat of the future is of a dead worker, from before the clock was set back.
	oldest := strconv.FormatInt(now.Add(-heartbeatLife).UnixMilli(), 10)
	newest := strconv.FormatInt(now.Add(heartbeatLife).UnixMilli(), 10)
	pipe := r.redis.Pipeline()
	newestFirst := pipe.ZRevRangeByScoreWithScores(ctx, r.keys.replicas(),
		&redis.ZRangeBy{Min: oldest, Max: newest, Count: maxReplicas})
	all := pipe.ZCount(ctx, r.keys.replicas(), oldest, newest)
	if err := execute(ctx, pipe); err != nil {
		return nil, 0, fmt.Errorf("redis: cannot read %s: %w", r.keys.replicas(), err)
	}
	seen := newestFirst.Val()
	if len(seen) == 0 {
		return nil, 0, nil
	}
	pipe = r.redis.Pipeline()
	contents := make([]*redis.StringCmd, len(seen))
	for i, entry := range seen {
		id, _ := entry.Member.(string)
		contents[i] = pipe.Get(ctx, r.keys.replica(id))
	}
	if err := execute(ctx, pipe); err != nil {
		return nil, 0, fmt.Errorf("redis: cannot read the heartbeats: %w", err)
	}
	for i, entry := range seen {
		id, _ := entry.Member.(string)
		if s, valid := decodeSnapshot(id, contents[i].Val()); valid {
			at := time.UnixMilli(int64(entry.Score)).UTC()
			if at.After(now) {
				at = now
			}
			replicas = append(replicas, Replica{Snapshot: s.At(at), Seen: at, Silent: now.Sub(at) >= silent})
		}
	}
	slices.SortFunc(replicas, func(a, b Replica) int { return cmp.Compare(a.Snapshot.ID, b.Snapshot.ID) })
	return replicas, int(all.Val()) - len(seen), nil
}

// decodeSnapshot decodes a heartbeat. It returns false for an expired one, and for one that no Reporter
// writes.
func decodeSnapshot(id, content string) (snapshot.Snapshot, bool) {
	var s snapshot.Snapshot
	if len(id) > maxIDBytes || len(content) > maxSnapshotBytes || json.Unmarshal([]byte(content), &s) != nil {
		return snapshot.Snapshot{}, false
	}
	s.ID = id
	s.NotReady, s.Waits, s.Channels = first(s.NotReady), first(s.Waits), first(s.Channels)
	s.Failing, s.Streams = first(s.Failing), first(s.Streams)
	return s, !s.Time.IsZero() && s.InFlight >= 0 && s.Held >= 0 && s.Held <= maxHeld
}

func first[T any](list []T) []T { return list[:min(len(list), maxEntries)] }

// execute executes a pipeline of reads. A missing key, or one of another type, is no error.
func execute(ctx context.Context, pipe redis.Pipeliner) error {
	commands, _ := pipe.Exec(ctx)
	for _, c := range commands {
		err := c.Err()
		if err != nil && !errors.Is(err, redis.Nil) && !strings.HasPrefix(err.Error(), "WRONGTYPE") {
			return err
		}
	}
	return nil
}

// fields reads hashes. It skips those that are too large, and counts them.
func (r *Reader) fields(ctx context.Context, hashes []string) (all []map[string]string, skipped int, err error) {
	pipe := r.redis.Pipeline()
	lengths := make([]*redis.IntCmd, len(hashes))
	for i, key := range hashes {
		lengths[i] = pipe.HLen(ctx, key)
	}
	if err := execute(ctx, pipe); err != nil {
		return nil, 0, fmt.Errorf("redis: cannot read the counts: %w", err)
	}
	pipe = r.redis.Pipeline()
	var reads []*redis.MapStringStringCmd
	for i, key := range hashes {
		switch n := lengths[i].Val(); {
		case n > maxFields:
			skipped++
		case n > 0:
			reads = append(reads, pipe.HGetAll(ctx, key))
		}
	}
	if err := execute(ctx, pipe); err != nil {
		return nil, 0, fmt.Errorf("redis: cannot read the counts: %w", err)
	}
	for _, read := range reads {
		all = append(all, read.Val())
	}
	return all, skipped, nil
}

// sum adds up the fields of tallies.
func sum(tallies []map[string]string) []Count {
	sums := map[Count]int64{}
	for _, fields := range tallies {
		for field, value := range fields {
			if c, valid := decodeCount(field, value); valid {
				n := c.N
				c.N = 0
				sums[c] += n
			}
		}
	}
	counts := make([]Count, 0, len(sums))
	for c, n := range sums {
		c.N = n
		counts = append(counts, c)
	}
	slices.SortFunc(counts, func(a, b Count) int {
		return cmp.Or(
			strings.Compare(a.Category, b.Category), strings.Compare(a.Outcome, b.Outcome),
			strings.Compare(a.Reason, b.Reason), strings.Compare(a.Source, b.Source),
		)
	})
	return counts
}

// reasonShape matches every reason, also of later releases.
var reasonShape = regexp.MustCompile(`^[a-z_]{0,32}$`)

func decodeCount(field, value string) (Count, bool) {
	parts := strings.Split(field, separator)
	n, valid := decodeNumber(value)
	if len(parts) != 3 || !valid || len(parts[1]) > maxNameBytes || len(parts[2]) > maxNameBytes {
		return Count{}, false
	}
	became, reason, _ := strings.Cut(parts[0], "/")
	if !slices.Contains(outcome.Outcomes(), became) ||
		!reasonShape.MatchString(reason) {
		return Count{}, false
	}
	return Count{Category: parts[1], Outcome: became, Reason: reason, Source: parts[2], N: n}, true
}

func decodeNumber(value string) (int64, bool) {
	n, err := strconv.ParseInt(value, 10, 64)
	return n, err == nil && n > 0 && n <= maxCount
}

func isName(name string) bool { return name != "" && len(name) <= maxNameBytes }

// Drops reads the drops of one period for the digest, in no order. Errors are as for Read.
func (r *Reader) Drops(ctx context.Context, interval time.Duration, period int64) ([]Drop, error) {
	read, skipped, err := r.fields(ctx, []string{r.keys.drops(interval, period)})
	if err != nil {
		return nil, err
	}
	if skipped > 0 {
		return nil, fmt.Errorf("the drops have more than %d names", maxFields)
	}
	var drops []Drop
	for _, fields := range read {
		for field, value := range fields {
			reason, category, found := strings.Cut(field, separator)
			n, valid := decodeNumber(value)
			if found && valid && inDigest(reason) && isName(category) {
				drops = append(drops, Drop{Reason: reason, Category: category, N: n})
			}
		}
	}
	return drops, nil
}

// ClaimDrops reports whether the caller is the first to claim the drops of a period, for three intervals.
// After an error it may have claimed them.
func (r *Reader) ClaimDrops(
	ctx context.Context, interval time.Duration, period int64, replica string,
) (bool, error) {
	first, err := r.redis.SetNX(ctx, r.keys.drops(interval, period)+":posted", replica, 3*interval).Result()
	if err != nil {
		return false, fmt.Errorf("redis: cannot claim the digest: %w", err)
	}
	return first, nil
}
