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

// What digest_take.lua answers.
const (
	verdictNotNow = 0
	verdictMine   = 1
	verdictLeft   = 2 // another replica has begun to tell it, and did not come to the end
)

// longestAhead bounds how far ahead a time in Redis can be: an interval, or what Slack or the backoff asks for.
const longestAhead = time.Hour

// store is what Redis keeps of the digest. Each call may be repeated.
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

// taken is the answer to take.
type taken struct {
	verdict  int64
	now      time.Time     // by the clock of Redis
	wait     time.Duration // verdictNotNow: until the next look; below 0: there is nothing to tell
	failures int           // tries in a row that have failed before this one
	posting  posting
	message  string // see decodeMessage; empty: none
}

// posting is what is to be told.
type posting struct {
	since, at time.Time // of the first drop, and of the copy
	drops     []stats.Drop
	err       error // why it cannot be read; it names the key
}

// take asks whether there is something to tell, and for the lease.
func (s *store) take(ctx context.Context, token string, lease, interval time.Duration) (taken, error) {
	longest := max(interval, lease, longestAhead)
	reply, err := s.takes.Run(ctx, s.redis, s.all(), token, micros(lease), micros(interval), micros(longest)).Slice()
	if err != nil {
		return taken{}, fmt.Errorf("redis cannot tell whether a digest is due: %w", err)
	}
	t, err := s.decode(reply)
	if err != nil {
		return taken{}, fmt.Errorf("redis: unexpected reply of digest_take.lua: %w", err)
	}
	return t, nil
}

// begin notes that the post is about to be made. False: the lease is lost.
func (s *store) begin(ctx context.Context, token string) (bool, error) {
	answer, err := s.begins.Run(ctx, s.redis, []string{s.keys.Lease(), s.keys.Posting()}, token).Int64()
	if err != nil {
		return false, fmt.Errorf("redis cannot note the digest: %w", err)
	}
	return answer == 1, nil
}

// What becomes of the message that can be edited, beside a new one.
const (
	keepMessage   = "="
	forgetMessage = ""
)

// ending is how a try went.
type ending struct {
	told     bool          // the drops are told, or may be
	wait     time.Duration // until the next try
	failures int
	message  string
}

// done notes how a try went. False: the lease is lost.
func (s *store) done(ctx context.Context, token string, end ending) (bool, error) {
	told := "0"
	if end.told {
		told = "1"
	}
	answer, err := s.dones.Run(ctx, s.redis, s.all(), token, told, micros(end.wait), strconv.Itoa(end.failures), end.message).Int64()
	if err != nil {
		return false, fmt.Errorf("redis cannot note how the digest went: %w", err)
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
	if !isList || len(fields)%2 != 0 || !isText || numbers[0] < verdictNotNow || numbers[0] > verdictLeft || numbers[3] < 0 {
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

// decodePosting reads the fields and their values. What was not written by a Recorder is an error.
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
