package ratelimit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// TestWhatEntriesTake holds the figures in memory.go against a real server: none is too low, and none far too
// high. It writes entries as the scripts store them, with the longest members, in numbers at which the tables
// of a set are largest and smallest.
func TestWhatEntriesTake(t *testing.T) {
	t.Parallel()
	client := redistest.StartProcess(t).Client(t)
	longest := func(i int) string { return fmt.Sprintf("%056d", i) }
	ofLog := func(i int) string { return longest(i) + " 1795149541123457 1000" }
	bucket := func(i int) string {
		return fmt.Sprintf("%d %d 1795149541123457", 1_234_567_890_123+i, 1_234_567_890_124+i)
	}
	for name, test := range map[string]struct {
		bytes  int
		counts []int
		member func(int) string
		hash   bool
	}{
		"a slot":          {ratelimit.SlotBytes, []int{1000, 9000, 16_385, 30_000}, ofLog, false},
		"an id sent":      {ratelimit.SentBytes, []int{1000, 9000, 16_385, 30_000}, longest, false},
		"an id in flight": {ratelimit.FlightBytes, []int{1000, 9000, 16_385, 30_000}, longest, true},
		"a bucket":        {ratelimit.BucketBytes, []int{97, 129, 1441, 2881}, bucket, false},
	} {
		t.Run(name, func(t *testing.T) {
			highest := 0.0
			for _, n := range test.counts {
				kit.Check(t, client.FlushDB(t.Context()).Err())
				_, err := client.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
					for i := range n {
						if test.hash {
							pipe.HSet(t.Context(), "k", test.member(i), fmt.Sprintf("1795149541123457g:1:1795149541123457:%022d NOTIFY.%d.dmzx6hgctrx5", i, i))
						} else {
							pipe.ZAdd(t.Context(), "k", redis.Z{Score: float64(1_795_149_541_123_457 + i), Member: test.member(i)})
						}
					}
					return nil
				})
				kit.Check(t, err)
				bytes, err := client.MemoryUsage(t.Context(), "k", 0).Result()
				kit.Check(t, err)
				highest = max(highest, float64(bytes)/float64(n))
				t.Logf("%d entries: %.1f bytes each", n, float64(bytes)/float64(n))
			}
			if figure := float64(test.bytes); highest > figure || highest < figure/2 {
				t.Errorf("up to %.1f bytes each, and the figure is %d", highest, test.bytes)
			}
		})
	}
}

// TestMemoryIsAnUpperBound: full limits take no more than Memory says, and not far less, while events are in
// flight and when they have been sent.
func TestMemoryIsAnUpperBound(t *testing.T) {
	t.Parallel()
	s := onProcess(t)
	rules := kit.Rules("3000/1h", "3000/1h", "")
	limiter := s.limiter(t, rules, time.Hour)
	batch := events(3000, strings.Repeat("x", 57), "a") // a member has 64 bytes then
	limiter.admits(batch...)
	memory := rules.Memory(time.Hour)
	check := func(when string) {
		var bytes int64
		for _, key := range s.Keys(t.Context(), "*").Val() {
			if !strings.HasSuffix(key, ":categories") { // the index, which is bounded by itself
				bytes += s.MemoryUsage(t.Context(), key, 0).Val()
			}
		}
		if most := memory.Limits + memory.IDs; bytes > most || bytes < most/2 {
			t.Errorf("%s: %d bytes, and Memory is %+v", when, bytes, memory)
		}
	}
	check("in flight")
	for _, e := range batch {
		limiter.sent(e)
	}
	check("sent")
}

// TestMemory: what is counted how often.
func TestMemory(t *testing.T) {
	const slot, sent, scopes = ratelimit.SlotBytes, ratelimit.SentBytes, ratelimit.MeasuredScopes
	const flight, bucket = ratelimit.FlightBytes, ratelimit.BucketBytes
	for _, test := range []struct {
		name                                                string
		global, category, overrides, group, groups, reserve string
		dedupe                                              time.Duration
		limits, ids                                         int64
	}{
		{"two exact levels", "100/30m", "10/30m", "", "", "", "", day, 100*slot + 100*slot, 100*flight + 4700*sent},
		{"a third", "100/30m", "10/30m", "", "40/30m", "", "", day, 300 * slot, 100*flight + 4700*sent},
		{"groups of their own alone", "100/30m", "10/30m", "", "", "a=5/30m", "", day, 300 * slot, 100*flight + 4700*sent},
		{"the longest window of a category", "100/30m", "10/30m", "a.*=5/1h", "", "", "", day, 100*slot + 200*slot, 200*flight + 4600*sent},
		{"a short dedupe window", "100/30m", "10/30m", "", "", "", "", time.Minute, 200 * slot, 100 * flight},
		{"a reserve", "100/1h+60/30m", "10/30m", "", "", "", "a=5", day, 200 * slot, 100*flight + 2300*sent},
		{"a global limit in buckets", "1000000/24h:15m", "10/30m", "", "", "", "", day, 97*bucket + 1_000_000*slot, 1_000_000 * flight},
		{"its dedupe window is shorter", "1000000/24h:15m+1000/1h:15m", "10/30m:1m", "", "", "", "", time.Hour, 97*bucket + 1000*bucket, 24_000 * flight},
		{"categories in buckets", "1000000/24h:15m", "10000/24h:15m", "", "", "", "", day, (97 + 97*scopes) * bucket, 1_000_000 * flight},
		{"a fixed window", "1000/24h:fixed", "100/24h:fixed", "", "", "", "", day, 2*bucket + 2000*bucket, 2000 * flight},
		{"few slots, many buckets", "5/24h:1m", "5/24h:1m", "", "", "", "", day, 10*bucket + 5*bucket, 5 * flight},
	} {
		rules := withLevels(t, test.global, test.category, test.overrides, test.group, test.groups, test.reserve)
		if got, want := rules.Memory(test.dedupe), (ratelimit.Memory{Limits: test.limits, IDs: test.ids}); got != want {
			t.Errorf("%s: %+v, expected %+v", test.name, got, want)
		}
	}
	widest := withLevels(t, "1000000/1ms", "1000000/1ms", "", "1000000/744h", "", "")
	if got := widest.Memory(31 * day); got.Limits < 0 || got.IDs < 1_000_000 {
		t.Errorf("the widest limits: %+v", got)
	}
}
