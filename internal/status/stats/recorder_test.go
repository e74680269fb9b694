package stats_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/status/stats"
	"notifier/test/kit"
)

// A publisher's category with our name for the others is counted under another name, and its limit is still
// its own.
func TestNobodyCountsAsTheOthers(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		var asked []string
		limit := func(_, category string) string { asked = append(asked, category); return "1/1m" }
		recorder := newRecorder(t, stats.Config{Redis: s.client(t), Replica: "r", Limit: limit})
		recorder.Observe("dropped", "category", stats.OtherCategory, "", 1, time.Now())
		run(t, recorder)()
		if diff := cmp.Diff(map[string]int64{"__other dropped category": 1}, sums(t, s.reader(t))); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"_other"}, asked); diff != "" {
			t.Errorf("limits asked for (-want +got):\n%s", diff)
		}
	})
}

func TestCountsOfAllReplicasAddUp(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		var stops []func()
		var observers sync.WaitGroup
		for i := range 3 {
			recorder := newRecorder(t, stats.Config{Redis: s.client(t), Replica: fmt.Sprint(i)})
			stops = append(stops, run(t, recorder))
			for range 2 {
				observers.Go(func() {
					for n := range 1000 {
						recorder.Observe("dropped", "global", "errors", "", 1, time.Now())
						if n%10 == 0 {
							recorder.Observe("sent", "", "a/b c", "", 1, time.Now())
							recorder.Observe("dead", "malformed", "errors", "", 1, time.Now())
						}
					}
				})
			}
		}
		before := time.Now()
		observers.Wait()
		for _, stop := range stops {
			stop() // counts survive a recorder's end
		}
		want := map[string]int64{"errors dropped global": 6000, "a/b c sent ": 600, "errors dead malformed": 600}
		reader := s.reader(t)
		if diff := cmp.Diff(want, sums(t, reader)); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		hour, err := reader.Hour(t.Context())
		kit.Check(t, err)
		if sent := hour.LastSent["a/b c"]; sent.Before(before.Add(-time.Minute)) || sent.After(hour.Now.Add(time.Minute)) || len(hour.LastSent) != 1 {
			t.Errorf("last sent %v, now %s", hour.LastSent, hour.Now)
		}
		for i, minute := range hour.Minutes {
			if i > 0 && minute.Start.Sub(hour.Minutes[i-1].Start) != time.Minute {
				t.Errorf("minute %d starts at %s", i, minute.Start)
			}
		}
		if last := hour.Minutes[59].Start; hour.Now.Before(last) || hour.Now.Sub(last) >= time.Minute {
			t.Errorf("the last minute starts at %s, now is %s", last, hour.Now)
		}
	})
}

// A minute is that of Redis's clock, whatever a replica's own says.
func TestMinutesAreThoseOfTheServer(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		if s.embedded == nil {
			t.Skip("the clock of a redis-server cannot be set")
		}
		now := time.Date(2031, 1, 2, 3, 4, 30, 0, time.UTC)
		s.embedded.SetTime(now)
		recorder := newRecorder(t, stats.Config{Redis: s.client(t), Heartbeat: func() stats.Heartbeat { return stats.Heartbeat{} }})
		stop := run(t, recorder)
		reader := s.reader(t)
		kit.EventuallyNil(t, func() error { // it has asked Redis once
			if replicas, err := reader.Replicas(t.Context()); err != nil || len(replicas) != 1 {
				return fmt.Errorf("%v, %v", replicas, err)
			}
			return nil
		})
		s.embedded.SetTime(now.Add(time.Millisecond))
		kit.EventuallyNil(t, func() error {
			replicas, err := reader.Replicas(t.Context())
			if err != nil || replicas[0].Seen != now.Add(time.Millisecond) {
				return fmt.Errorf("%v, %v", replicas, err)
			}
			return nil
		})
		recorder.Observe("sent", "", "errors", "", 1, time.Now())
		recorder.Observe("sent", "", "errors", "", 1, time.Now().Add(-2*time.Minute))
		stop()
		hour, err := reader.Hour(t.Context())
		kit.Check(t, err)
		one := []stats.Count{{Category: "errors", Outcome: "sent", N: 1}}
		if diff := cmp.Diff(one, hour.Minutes[59].Counts); diff != "" {
			t.Errorf("this minute (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(one, hour.Minutes[57].Counts); diff != "" {
			t.Errorf("two minutes ago (-want +got):\n%s", diff)
		}
		if sent := hour.LastSent["errors"]; sent.Sub(now).Abs() > 10*time.Second {
			t.Errorf("last sent %s, now is %s", sent, now)
		}
	})
}

func pending(t testing.TB, s store) map[string]string {
	t.Helper()
	keys, err := stats.NewKeys("n")
	kit.Check(t, err)
	fields, err := s.client(t).HGetAll(t.Context(), keys.Pending()).Result()
	kit.Check(t, err)
	return fields
}

// Publishers cannot make Redis, or a page, grow by inventing categories, and nothing is left out of the sums.
func TestTenThousandCategoriesStayBounded(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		const replicas, categories = 3, 10_000
		for replica := range replicas {
			recorder := newRecorder(t, stats.Config{Redis: s.client(t), Replica: fmt.Sprint(replica), Limit: limitText})
			at := time.Now()
			for i := range categories {
				// Each replica begins with others, so that each has its own first hundred.
				category := fmt.Sprintf("category-%d", (i+1000*replica)%categories)
				recorder.Observe("sent", "", category, "", 1, at)
				recorder.Observe("dropped", "category", category, "", 1, at)
				recorder.Observe("dropped", "global", category, "", 1, at)
				recorder.Observe("dropped", "group", category, "", 1, at) // each is a group of its own
			}
			run(t, recorder)()
		}
		hour := lastHour(t, s.reader(t))
		var total int64
		for _, c := range hour.Sum() {
			total += c.N
		}
		if want := int64(4 * replicas * categories); total != want {
			t.Errorf("%d events are counted, want %d", total, want)
		}
		for _, minute := range hour.Minutes {
			named := map[string]bool{}
			for _, c := range minute.Counts {
				named[c.Category] = true
			}
			if len(named) > stats.MaxCategories+1 {
				t.Errorf("%d categories in a minute, want 100 and %s", len(named), stats.OtherCategory)
			}
		}
		if len(hour.LastSent) != stats.MaxCategories {
			t.Errorf("last sent of %d categories, want 100", len(hour.LastSent))
		}
		named := map[string]bool{}
		total = 0
		for field, value := range pending(t, s) {
			if field != "since" {
				drop, err := stats.ParseDrop(field, value)
				kit.Check(t, err)
				named[drop.Category] = true
				total += drop.Count
			}
		}
		if want := int64(3 * replicas * categories); total != want || len(named) != stats.MaxCategories+1 {
			t.Errorf("%d drops of %d categories, want %d of 101", total, len(named), want)
		}
	})
}

func TestDropsForTheDigest(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		observe := func(recorder *stats.Recorder) {
			for _, reason := range []string{"global", "group", "category", "duplicate", "expired"} {
				recorder.Observe("dropped", reason, "errors", "", 1, time.Now())
			}
			recorder.Observe("dead", "malformed", "errors", "", 1, time.Now())
			recorder.Observe("sent", "", "errors", "", 1, time.Now())
			run(t, recorder)()
		}
		observe(newRecorder(t, stats.Config{Redis: s.client(t)}))
		if got := pending(t, s); len(got) > 0 {
			t.Errorf("%v is pending with the digest off", got)
		}
		before := time.Now()
		observe(newRecorder(t, stats.Config{Redis: s.client(t), Limit: limitText}))
		got := pending(t, s)
		var since int64
		if _, err := fmt.Sscan(got["since"], &since); err != nil || time.UnixMicro(since).Sub(before).Abs() > time.Minute {
			t.Errorf("since is %q", got["since"])
		}
		delete(got, "since")
		if diff := cmp.Diff(map[string]string{"global 100/30m errors": "1", "group 50/24h:15m errors": "1", "category 10/30m errors": "1"}, got); diff != "" {
			t.Errorf("pending (-want +got):\n%s", diff)
		}
	})
}

func TestObserveAllocatesNothing(t *testing.T) {
	recorder := newRecorder(t, stats.Config{})
	at := time.Now()
	names := make([]string, 500)
	for i := range names {
		names[i] = fmt.Sprint("category-", i)
	}
	i := 0
	observe := func() {
		recorder.Observe("dropped", "global", names[i%len(names)], "", 1, at)
		recorder.Observe("sent", "", names[i%len(names)], "", 1, at)
		i++
	}
	for range names {
		observe()
	}
	if allocs := testing.AllocsPerRun(1000, observe); allocs > 0 {
		t.Errorf("%v allocations for each event, want none", allocs)
	}
}

func TestEveryKeyExpires(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		recorder := newRecorder(t, stats.Config{Redis: s.client(t), Limit: limitText, Heartbeat: func() stats.Heartbeat { return stats.Heartbeat{} }})
		run(t, recorder)
		recorder.Observe("sent", "", "errors", "", 1, time.Now())
		recorder.Observe("dropped", "global", "errors", "", 1, time.Now())
		kit.EventuallyNil(t, func() error {
			if len(pending(t, s)) == 0 {
				return fmt.Errorf("nothing is pending")
			}
			return nil
		})
		names, err := s.owner(t).Keys(t.Context(), "*").Result()
		if err != nil || len(names) != 6 {
			t.Errorf("%q, %v, want six keys", names, err)
		}
		for _, name := range names {
			if ttl := s.client(t).PTTL(t.Context(), name).Val(); ttl <= 0 || !strings.HasPrefix(name, "{n}:") {
				t.Errorf("%s expires in %s", name, ttl)
			}
		}
	})
}
