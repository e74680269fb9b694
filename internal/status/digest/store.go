package digest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/status/stats"
	"notifier/lua"
)

// longestAhead bounds how far ahead a time in Redis can be: an interval, or what Slack or the backoff asks
// for. One further ahead was written before the clock was set back, and does not count.
const longestAhead = time.Hour

// store is the state of the digest in Redis. Each call may be repeated. Release v0.1.0 uses the same keys and
// forms, and the two may run side by side: see lua/digest.lua for them.
type store struct {
	redis   redis.UniversalClient
	keys    stats.Keys
	longest time.Duration // longestAhead, or what the Config has if that is longer
	clock   *redis.Script
	digest  *redis.Script
}

func newStore(client redis.UniversalClient, keys stats.Keys, longest time.Duration) *store {
	return &store{
		redis: client, keys: keys, longest: max(longest, longestAhead),
		clock: redis.NewScript(lua.Now), digest: redis.NewScript(lua.Digest),
	}
}

// acquire takes the lease for a time if nobody has it. After an error this replica may have it.
func (s *store) acquire(ctx context.Context, token string, length time.Duration) (bool, error) {
	now, err := s.now(ctx)
	if err != nil {
		return false, err
	}
	value := microText(now.Add(length)) + " " + token
	acquired, err := s.redis.SetNX(ctx, s.keys.Lease(), value, length).Result()
	if err == nil && !acquired {
		acquired, err = s.inspectLease(ctx, token, now)
	}
	if err != nil {
		return false, fmt.Errorf("redis: cannot take the lease of the digest: %w", err)
	}
	return acquired, nil
}

// inspectLease reports whether the lease is this replica's after all, because the reply to an earlier try was
// lost. It removes one that no longer holds: v0.1.0 keeps the key for a minute longer, and a clock that is
// set back keeps any key longer.
func (s *store) inspectLease(ctx context.Context, token string, now time.Time) (bool, error) {
	value, err := s.redis.Get(ctx, s.keys.Lease()).Result()
	if errors.Is(err, redis.Nil) { // it has just been released
		return false, nil
	}
	if err != nil {
		return false, err
	}
	text, holder, _ := strings.Cut(value, " ")
	if holder == token {
		return true, nil
	}
	ends, valid := microTime(text)
	if !valid || !ends.After(now) || ends.Sub(now) > s.longest {
		err = s.redis.Del(ctx, s.keys.Lease()).Err()
	}
	return false, err
}

// snapshot is what the holder of the lease reads before it does anything.
type snapshot struct {
	now      time.Time         // by the clock of Redis
	fields   map[string]string // of the pending drops; empty: there are none
	since    time.Time         // when the first of them was counted
	drops    []stats.Drop
	invalid  error     // why the drops cannot be reported; it names the key
	died     bool      // a replica died while it was posting the digest
	doubtful int64     // how many drops it may have reported
	copied   time.Time // when it copied them
	next     time.Time // no replica posts before
	failures int       // attempts in a row that have failed
	post     string    // name of the next post, for all replicas until an attempt has ended
	message  string    // see decodeMessage; empty: none
}

// read returns a snapshot.
func (s *store) read(ctx context.Context) (snapshot, error) {
	now, err := s.now(ctx)
	if err != nil {
		return snapshot{}, err
	}
	pipe := s.redis.Pipeline()
	pendingCmd := pipe.HGetAll(ctx, s.keys.Pending())
	postingCmd := pipe.HGetAll(ctx, s.keys.Posting())
	stateCmd := pipe.HGetAll(ctx, s.keys.State())
	messageCmd := pipe.Get(ctx, s.keys.Message())
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return snapshot{}, fmt.Errorf("redis: cannot read the digest: %w", err)
	}
	pending, posting, state := pendingCmd.Val(), postingCmd.Val(), stateCmd.Val()
	read := snapshot{now: now, fields: pending, post: "digest-" + state["token"], message: messageCmd.Val()}
	if read.drops, read.invalid = decodeDrops(pending); read.invalid != nil {
		read.invalid = fmt.Errorf("redis: %s: %w", s.keys.Pending(), read.invalid)
	}
	if _, read.died = posting["begun"]; read.died {
		drops, _ := decodeDrops(posting)
		read.doubtful = total(drops)
		read.copied, _ = microTime(posting["at"])
	}
	read.next, _ = microTime(state["next"])
	failures, _ := strconv.Atoi(state["failures"])
	read.failures = max(failures, 0)

	var valid bool
	read.since, valid = microTime(pending["since"])
	if len(pending) > 0 && (!valid || read.since.After(now)) { // the clock was set back: an interval begins now
		read.since = now
		err = s.redis.HSet(ctx, s.keys.Pending(), "since", microText(now)).Err()
	}
	return read, err
}

// decodeDrops decodes the drops among the fields of a hash. Anything else that was not written by a Recorder
// or a Digest is an error.
func decodeDrops(fields map[string]string) ([]stats.Drop, error) {
	var drops []stats.Drop
	for field, value := range fields {
		switch field {
		case "since", "at", "begun":
			continue
		}
		drop, err := stats.ParseDrop(field, value)
		if err != nil {
			return drops, err
		}
		drops = append(drops, drop)
	}
	if len(drops) == 0 {
		return nil, errors.New("no drops, expected some")
	}
	return drops, nil
}

// wait is how long to wait until the pending drops are to be reported; 0: now.
func (s *store) wait(read snapshot, interval time.Duration) time.Duration {
	due := read.since.Add(interval)
	if read.next.After(due) && read.next.Sub(read.now) <= s.longest {
		due = read.next
	}
	return max(due.Sub(read.now), 0)
}

// begin records that the drops of a snapshot are about to be posted, and extends the lease. False: the lease
// is lost.
func (s *store) begin(ctx context.Context, token string, length time.Duration, read snapshot) (bool, error) {
	arguments := []any{token, "begin", microseconds(length), "at", microText(read.now), "begun", "1"}
	for field, value := range read.fields {
		arguments = append(arguments, field, value)
	}
	return s.run(ctx, arguments...)
}

// result is how an attempt ended.
type result struct {
	reported bool          // the drops are reported, or may be
	wait     time.Duration // until the next attempt
	failures int
	message  string // the last digest, if it may be edited
}

// finish records the result of an attempt. False: the lease is lost.
func (s *store) finish(ctx context.Context, token string, r result) (bool, error) {
	how := "failed"
	if r.reported {
		how = "reported"
	}
	return s.run(ctx, token, how, microseconds(r.wait), strconv.Itoa(r.failures), r.message)
}

// release gives up the lease, if this replica has it.
func (s *store) release(ctx context.Context, token string) error {
	_, err := s.run(ctx, token, "release")
	return err
}

func (s *store) run(ctx context.Context, arguments ...any) (bool, error) {
	keys := []string{s.keys.Lease(), s.keys.Pending(), s.keys.Posting(), s.keys.State(), s.keys.Message()}
	done, err := s.digest.Run(ctx, s.redis, keys, arguments...).Int64()
	if err != nil {
		return false, fmt.Errorf("redis: cannot record %q of the digest: %w", arguments[1], err)
	}
	return done == 1, nil
}

func (s *store) now(ctx context.Context) (time.Time, error) {
	micros, err := s.clock.Run(ctx, s.redis, []string{s.keys.Lease()}).Int64()
	if err != nil {
		return time.Time{}, fmt.Errorf("redis: cannot read the time: %w", err)
	}
	return time.UnixMicro(micros).UTC(), nil
}

func microText(t time.Time) string { return strconv.FormatInt(t.UnixMicro(), 10) }

func microseconds(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

// microTime decodes a time in microseconds. False: it is none.
func microTime(text string) (time.Time, bool) {
	micros, err := strconv.ParseInt(text, 10, 64)
	return time.UnixMicro(micros).UTC(), err == nil
}
