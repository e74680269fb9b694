package digest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/stats"
	"notifier/lua"
)

// Verdicts of digest_take.lua.
const (
	verdictNotNow    = 0
	verdictAcquired  = 1
	verdictAbandoned = 2 // another replica has begun to report it, and did not finish
)

// longestAhead bounds how far ahead a time in Redis can be: an interval, or what Slack or the backoff asks for.
const longestAhead = time.Hour

// store is the state of the digest in Redis. Each call may be repeated.
type store struct {
	redis                redis.UniversalClient
	keys                 stats.Keys
	takes, begins, dones *redis.Script
}

func newStore(client redis.UniversalClient, keys stats.Keys) *store {
	return &store{
		redis: client, keys: keys,
		takes: redis.NewScript(lua.DigestTake), begins: redis.NewScript(lua.DigestBegin), dones: redis.NewScript(lua.DigestDone),
	}
}

func (s *store) all() []string {
	return []string{s.keys.Lease(), s.keys.State(), s.keys.Pending(), s.keys.Posting(), s.keys.Message()}
}

// taken is the reply to take.
type taken struct {
	verdict  int64
	now      time.Time     // by the clock of Redis
	wait     time.Duration // verdictNotNow: until the next check; below 0: there is nothing to report
	failures int           // attempts in a row that have failed before this one
	posting  posting
	message  string // see decodeMessage; empty: none. verdictNotNow: the token of the last attempt whose result was recorded
}

// posting is what is to be reported.
type posting struct {
	since, at time.Time // of the first drop, and of the copy
	drops     []stats.Drop
	err       error // why it cannot be decoded; it names the key
}

// take checks whether a digest is due, and takes the lease if so.
func (s *store) take(ctx context.Context, token string, lease, interval time.Duration) (taken, error) {
	return s.check(ctx, token, lease, interval, "0")
}

// look is take without taking anything. attempt names the attempt that would be made: the same for all replicas until its
// result is recorded.
func (s *store) look(ctx context.Context, token string, lease, interval time.Duration) (t taken, attempt string, err error) {
	t, err = s.check(ctx, token, lease, interval, "1")
	return t, postOf(t), err
}

// postOf names the post of the attempt that comes after the last one whose result was recorded.
func postOf(t taken) string { return "digest-" + t.message }

func (s *store) check(ctx context.Context, token string, lease, interval time.Duration, look string) (taken, error) {
	longest := max(interval, lease, longestAhead)
	reply, err := s.takes.Run(ctx, s.redis, s.all(), token, micros(lease), micros(interval), micros(longest), look).Slice()
	if err != nil {
		return taken{}, fmt.Errorf("redis: cannot check whether a digest is due: %w", err)
	}
	t, err := s.decode(reply)
	if err != nil {
		return taken{}, fmt.Errorf("redis: unexpected reply from digest_take.lua: %w", err)
	}
	return t, nil
}

// begin records that the post is about to be made. False: the lease is lost.
func (s *store) begin(ctx context.Context, token string) (bool, error) {
	answer, err := s.begins.Run(ctx, s.redis, []string{s.keys.Lease(), s.keys.Posting()}, token).Int64()
	if err != nil {
		return false, fmt.Errorf("redis: cannot record that the digest is being posted: %w", err)
	}
	return answer == 1, nil
}

// What becomes of the message that can be edited, if it is not replaced by a new one.
const (
	keepMessage   = "="
	forgetMessage = ""
)

// result is how an attempt ended.
type result struct {
	reported bool          // the drops are reported, or may be
	wait     time.Duration // until the next attempt
	failures int
	message  string
}

// done records the result of an attempt. False: the lease is lost.
func (s *store) done(ctx context.Context, token string, r result) (bool, error) {
	reported := "0"
	if r.reported {
		reported = "1"
	}
	answer, err := s.dones.Run(ctx, s.redis, s.all(), token, reported, micros(r.wait), strconv.Itoa(r.failures), r.message).Int64()
	if err != nil {
		return false, fmt.Errorf("redis: cannot record the result of the digest: %w", err)
	}
	return answer == 1, nil
}

func (s *store) decode(reply []any) (taken, error) {
	if len(reply) != 6 {
		return taken{}, fmt.Errorf("%d entries, expected 6", len(reply))
	}
	var numbers [4]int64
	for i := range numbers {
		number, ok := reply[i].(int64)
		if !ok {
			return taken{}, fmt.Errorf("entry %d is a %T, expected a whole number", i+1, reply[i])
		}
		numbers[i] = number
	}
	fields, isList := reply[4].([]any)
	message, isText := reply[5].(string)
	if !isList || len(fields)%2 != 0 || !isText || numbers[0] < verdictNotNow || numbers[0] > verdictAbandoned || numbers[3] < 0 {
		return taken{}, fmt.Errorf("%.200v, expected a verdict, three numbers, fields and a message", reply)
	}
	t := taken{
		verdict: numbers[0], now: time.UnixMicro(numbers[1]).UTC(), wait: time.Duration(numbers[2]) * time.Microsecond,
		failures: int(min(numbers[3], 1000)), message: message,
	}
	if t.verdict != verdictNotNow {
		t.posting = s.decodePosting(fields, t.now)
	}
	return t, nil
}

// decodePosting decodes fields and their values. Anything that was not written by a Recorder is an error.
func (s *store) decodePosting(fields []any, now time.Time) posting {
	p := posting{since: now, at: now}
	wrong := func(err error) posting {
		p.err = fmt.Errorf("redis: %s: %w", s.keys.Pending(), err)
		return p
	}
	for pair := range slices.Chunk(fields, 2) {
		field, isText := pair[0].(string)
		value, isTextToo := pair[1].(string)
		if !isText || !isTextToo {
			return wrong(fmt.Errorf("a %T and a %T, expected texts", pair[0], pair[1]))
		}
		switch field {
		case "begun":
		case "since", "at":
			at, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return wrong(fmt.Errorf("%s is %.40q, expected microseconds", field, value))
			}
			if field == "at" {
				p.at = time.UnixMicro(at).UTC()
			} else {
				p.since = time.UnixMicro(at).UTC()
			}
		default:
			drop, err := stats.ParseDrop(field, value)
			if err != nil {
				return wrong(err)
			}
			p.drops = append(p.drops, drop)
		}
	}
	if len(p.drops) == 0 {
		return wrong(fmt.Errorf("no drops, expected some"))
	}
	return p
}

func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
