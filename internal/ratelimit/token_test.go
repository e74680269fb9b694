package ratelimit_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/lua"
	"notifier/test/kit"
)

// TestAdmitNeedsTheKnownOpenStore, and stores nothing before.
func TestAdmitNeedsTheKnownOpenStore(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		script := redis.NewScript(lua.Admit)
		keys := []string{
			"{n}:meta", "{n}:inflight", "{n}:sent", "{n}:categories",
			"{n}:global", "{n}:buckets:global", "{n}:category:a", "{n}:buckets:category:a",
		}
		asks := func(word, token string, dryRun int) {
			t.Helper()
			before := s.contents(t)
			reply, err := script.Run(t.Context(), s.Client, keys, "86400000000", "1800000000", token, "r", dryRun,
				1, 1, 0, 100, 1800000000, 0, 1, 0, 1800000000, 1, 1, 1800000000, 0, 1, "a", 2, 1, "a:e", "d", 1).Slice()
			kit.Check(t, err)
			if reply[0] != word {
				t.Errorf("token %q: %v, expected %s", token, reply, word)
			}
			if word == "closed" && (reply[2].(int64) <= 0 || reply[2].(int64) > time.Minute.Microseconds()) {
				t.Errorf("%v, expected a wait of a minute at most", reply)
			}
			if word != "decided" || dryRun == 1 {
				s.unchanged(t, before)
			}
		}
		wants := func(word, token string) {
			t.Helper()
			asks(word, token, 1)
			asks(word, token, 0)
		}
		opensAfter := func(d time.Duration) {
			t.Helper()
			at, err := s.Time(t.Context()).Result()
			kit.Check(t, err)
			opens := strconv.FormatInt(at.Add(d).UnixMicro(), 10)
			kit.Check(t, s.HSet(t.Context(), "{n}:meta", "token", "p 1", "opens", opens).Err())
		}
		wants("unknown store", "p 1") // an empty one has no token
		opensAfter(time.Minute)
		wants("unknown store", "p 2")
		wants("closed", "p 1")
		opensAfter(300 * time.Millisecond)
		if s.embedded != nil { // whose clock stands still
			wants("closed", "p 1")
		}
		opensAfter(-time.Millisecond)
		wants("unknown store", "p 2")
		wants("decided", "p 1")
		wants("decided", "") // any store
	})
}
