package ratelimit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

func zAt(score int64, member string) redis.Z { return redis.Z{Score: float64(score), Member: member} }

// Events that are not admitted charge, store and remove nothing, and postpone no expiry.
func TestRefusedEventsStoreNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("8/30m+8/20m", "4/10m", "short=1/1m"), day)
		sent := event("sent", "a")
		limiter.admit(sent, event("flying", "a"), event("s", "short"))
		limiter.sent(sent)
		s.advance(t, 2*time.Minute) // the entry of "short" has left its window
		limiter.admit(events(3, "b", "b")...)
		limiter.admit(events(2, "a", "a")...)

		s.advance(t, time.Second)
		before := s.contents(t)
		storm := append(events(500, "storm", "a"), sent, by("another message", event("flying", "a")), event("flying", "a"))
		storm = append(storm, costing(event("big", "b"), 2), costing(event("big too", "new"), 5), costing(event("bigger", "short"), 2))
		for i, decision := range limiter.admit(storm...) {
			if decision.Verdict == ratelimit.Admitted && storm[i].ID != "flying" { // which is in flight
				t.Fatalf("%s: %+v", storm[i].ID, decision)
			}
		}
		s.unchanged(t, before)
	})
}

func TestEveryKeyExpires(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/10m+5/1m", "slow=5/2h,fast=5/50s"), day)
		e, f := event("e", "a"), event("f", "a")
		limiter.admit(e, f, event("s", "slow"), event("q", "fast"))
		limiter.sent(e)
		limiter.refund(f)
		limiter.postsTo("#a", "p0")
		limiter.postsTo("#begun", "p2")
		limiter.answer(ratelimit.Answer{Channel: "#a", Name: "p0", RetryAfter: time.Minute}, ratelimit.PausedChannel)
		limiter.answer(ratelimit.Answer{Channel: "#late", Name: "p1"}, ratelimit.NoPause) // its slot has expired
		bounds := map[string]time.Duration{
			"{n}:global": 30 * time.Minute, "{n}:inflight": day, "{n}:sent": day,
			"{n}:pauses": 61 * time.Minute, "{n}:probes": 61 * time.Minute, "{n}:pace:#a": 3 * time.Hour, "{n}:pace:#begun": 3 * time.Hour, "{n}:pace:#late": 3 * time.Hour,
			"{n}:categories": day + 2*time.Hour, "{n}:meta": 32 * day,
			"{n}:category:a": 10 * time.Minute, "{n}:category:slow": 2 * time.Hour, "{n}:category:fast": 50 * time.Second,
		}
		names := s.Keys(t.Context(), "*").Val()
		if len(names) != len(bounds) {
			t.Errorf("keys %v, expected %d", names, len(bounds))
		}
		for _, name := range names {
			left, bound := s.PTTL(t.Context(), name).Val(), bounds[name]
			if left <= 0 || left > bound+2*time.Millisecond || left < bound-10*time.Second {
				t.Errorf("%s expires in %s, expected %s", name, left, bound)
			}
		}
	})
}

// The key of a busy category never expires, so admissions trim the entries that have left its window. Each
// call trims a bounded number.
func TestAdmissionsTrimTheLog(t *testing.T) {
	eachLimiter(t, "5000/30m", "5000/10m", func(t *testing.T, s *store, limiter caller) {
		for i := range 5 {
			limiter.admits(costing(event(fmt.Sprint("old", i), "a"), 500))
		}
		for i := range 8 {
			s.advance(t, 6*time.Minute)
			limiter.admits(event(fmt.Sprint("next", i), "a"))
			if n := s.count(t, "{n}:category:a"); i == 1 && n != 2502-1002 {
				t.Errorf("%d entries after one admission, expected that 1002 have been removed", n)
			}
		}
		if global, category := s.count(t, "{n}:global"), s.count(t, "{n}:category:a"); global != 5 || category != 2 {
			t.Errorf("%d entries in the global set and %d in the category's, expected 5 and 2", global, category)
		}
	})
}

func TestSentIDsAreForgotten(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), 2*time.Hour)
		for i := range 6 { // an hour apart, so the key itself never expires
			e := event(fmt.Sprint("e", i), "a")
			limiter.admits(e)
			limiter.sent(e)
			s.advance(t, time.Hour)
		}
		ids := s.ZRange(t.Context(), "{n}:sent", 0, -1).Val()
		if len(ids) != 3 || ids[0] != "a:e4" || ids[1] != "a:e5" { // the third is the long member of sent.lua
			t.Errorf("%q are kept, expected e4 and e5", ids)
		}
	})
}

func TestLargestBatchIsDecidedInOrder(t *testing.T) {
	eachLimiter(t, "500/30m", "1/30m", func(t *testing.T, s *store, limiter caller) {
		batch := make([]ratelimit.Request, ratelimit.MaxBatch)
		for i := range batch {
			batch[i] = event(fmt.Sprint("e", i), fmt.Sprint("c", i%900))
		}
		batch[950] = by("another message", batch[7])
		for i, decision := range limiter.admit(batch...) {
			want := ratelimit.Admitted
			switch {
			case i == 950:
				want = ratelimit.Duplicate
			case i >= 900: // the second event of its category
				want = ratelimit.Category // on a tie, the narrowest scope
			case i >= 500:
				want = ratelimit.Global
			}
			if decision.Verdict != want {
				t.Fatalf("event %d: %+v, expected outcome %d", i, decision, want)
			}
		}
		tooMany := append(batch, event("one more", "c"))
		if got, err := limiter.Admit(t.Context(), tooMany); err == nil || got != nil {
			t.Errorf("%d decisions for %d events, %v", len(got), len(tooMany), err)
		}
	})
}

func TestCostlyEventTakesAllItsSlots(t *testing.T) {
	eachLimiter(t, "1900/30m", "1800/30m", func(t *testing.T, s *store, limiter caller) {
		big := costing(event(strings.Repeat("long", 100), "a"), 1000)
		limiter.admits(big)
		s.charged(t, 1000)
		if got := limiter.one(costing(event("x", "a"), 801)); got.Verdict != ratelimit.Category || got.Used != 1000 {
			t.Errorf("%+v", got)
		}
		// The result is ignored: on a busy host the client may repeat the call, which then refunds nothing.
		limiter.refund(big)
		s.Del(t.Context(), "{n}:categories", "{n}:meta") // they hold no slots
		if left := s.contents(t); left != "" {
			t.Errorf("a refund left something behind:\n%s", left)
		}
	})
}

func TestInFlightRecordIsParsed(t *testing.T) {
	eachLimiter(t, "100/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
		e := by("a delivery: with 2 blanks\nand a line end", event("e", "a"))
		read := func() ratelimit.InFlight {
			t.Helper()
			record, err := ratelimit.ParseInFlight(s.HGet(t.Context(), "{n}:inflight", slot(e)).Val())
			kit.Check(t, err)
			return record
		}
		limiter.admits(e)
		if record, at := s.HGet(t.Context(), "{n}:inflight", slot(e)).Val(), s.takenAt(t, "{n}:global", slot(e)); record != fmt.Sprint(at, ":0:0: ", e.Delivery) {
			t.Errorf("the record is %q, expected the admission at %d without a post", record, at)
		}
		want := ratelimit.InFlight{Admitted: time.UnixMicro(s.takenAt(t, "{n}:global", slot(e))).UTC(), Delivery: e.Delivery}
		if difference := cmp.Diff(want, read()); difference != "" {
			t.Errorf("admitted (-want +got):\n%s", difference)
		}
		limiter.posts(1, e, "", "p1")
		limiter.posts(2, e, "p1", "p2")
		got := read()
		if got.LastPost.Before(want.Admitted) {
			t.Errorf("the last post began at %s, before the admission at %s", got.LastPost, want.Admitted)
		}
		want.Posts, want.LastName, want.LastPost = 2, "p2", got.LastPost
		if difference := cmp.Diff(want, got); difference != "" {
			t.Errorf("with two posts (-want +got):\n%s", difference)
		}
	})
}

func TestMalformedInFlightRecordIsAnError(t *testing.T) {
	for _, text := range []string{"", "soon", "17", ":1:2:p d", "17:1:2 d", "17:1:p:2 d", "-17 d", "1795149541123457000 d"} {
		if record, err := ratelimit.ParseInFlight(text); err == nil {
			t.Errorf("%q is read as %+v, expected an error", text, record)
		}
	}
}

func TestTokenOfAStoreExpires(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		s.quarantine(t, "g1")
		if left := s.PTTL(t.Context(), "{n}:meta").Val(); left < 31*day || left > 33*day {
			t.Errorf("it expires in %s, expected 32 days", left)
		}
	})
}

// A caller may name a post that the record lacks, because the record was restored without it.
func TestUnpostedEventIsAlwaysRefunded(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.limiter(t, kit.Rules("9/1h", "9/1h", ""), day)
		c.admits(event("e", "a"))
		if !c.refundAfter(event("e", "a"), "a post") {
			t.Error("nothing was refunded")
		}
	})
}

// Clean-up removes a record a month after its last post, and never removes one that it cannot read.
func TestRecentPostKeepsAnOldRecord(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.limiter(t, kit.Rules("99/1h", "99/1h", ""), day)
		c.admits(event("first", "a"))
		now := s.Time(t.Context()).Val()
		old := now.Add(-32 * day).UnixMicro()
		records := map[string]string{
			"a:posted":  fmt.Sprintf("%d:1:%d:post delivery", old, now.UnixMicro()),
			"a:unknown": "of a later release",
		}
		kit.Check(t, s.HSet(t.Context(), "{n}:inflight", records).Err())
		kit.Check(t, s.HSet(t.Context(), "{n}:inflight", "a:old", fmt.Sprintf("%d:0:0: delivery", old)).Err())
		for i := 0; s.HExists(t.Context(), "{n}:inflight", "a:old").Val(); i++ {
			if i == 90 {
				t.Fatal("90 admissions have not met the old record")
			}
			c.admits(event(fmt.Sprint("e", i), "a"))
			c.sent(event(fmt.Sprint("e", i), "a"))
		}
		for name, record := range records {
			if got := s.HGet(t.Context(), "{n}:inflight", name).Val(); got != record {
				t.Errorf("%s is %q, expected %q", name, got, record)
			}
		}
	})
}

// Clean-up removes the field of a worker a month after its last admission, and no other field.
func TestWorkersThatAreGoneAreForgotten(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.limiter(t, kit.Rules("999/1h", "999/1h", ""), day)
		now := s.Time(t.Context()).Val()
		kept := map[string]string{"seen here": fmt.Sprint(now.UnixMicro()), "seen junk": "x", "of a later release": "1"}
		kit.Check(t, s.HSet(t.Context(), "{n}:meta", kept).Err())
		kit.Check(t, s.HSet(t.Context(), "{n}:meta", "seen gone", now.Add(-32*day).UnixMicro()).Err())
		for i := 0; s.HExists(t.Context(), "{n}:meta", "seen gone").Val(); i++ {
			if i == 200 {
				t.Fatal("200 admissions have not met the old field")
			}
			c.admits(event(fmt.Sprint("e", i), "a"))
		}
		for field, value := range kept {
			if got := s.HGet(t.Context(), "{n}:meta", field).Val(); got != value {
				t.Errorf("%s is %q, expected %q", field, got, value)
			}
		}
	})
}

// A failed clean-up fails no decision, because a Redis user may lack its commands.
func TestUserWhoMayNotCleanUpAdmits(t *testing.T) {
	for _, command := range []string{"hrandfield", "hdel"} {
		s := onProcess(t)
		old := s.Time(t.Context()).Val().Add(-32 * day).UnixMicro()
		for i := range 50 {
			record := fmt.Sprintf("%d:0:0: delivery", old)
			kit.Check(t, s.HSet(t.Context(), "{n}:inflight", fmt.Sprint("a:old", i), record).Err())
		}
		kit.Check(t, s.Do(t.Context(), "ACL", "SETUSER", "default", "-"+command).Err())
		s.limiter(t, kit.Rules("900/1h", "900/1h", ""), day).admits(events(200, "e", "a")...)
	}
}

// A batch that writes more records also inspects more old ones.
func TestCleanUpKeepsUpWithLargeBatches(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.limiter(t, kit.Rules("9000/1h", "9000/1h", ""), day)
		old := s.Time(t.Context()).Val().Add(-32 * day).UnixMicro()
		records := map[string]string{}
		for i := range 900 {
			records[fmt.Sprint("a:old", i)] = fmt.Sprintf("%d:0:0: delivery", old)
		}
		kit.Check(t, s.HSet(t.Context(), "{n}:inflight", records).Err())
		for i := 1; ; i++ {
			c.admit(events(30, fmt.Sprint("e", i), "a")...)
			if removed := len(records) + 30*i - int(s.HLen(t.Context(), "{n}:inflight").Val()); removed >= 100 {
				return
			} else if removed > 0 || i == 200 {
				t.Fatalf("%d old records are gone after %d batches, expected 100 or more at once", removed, i)
			}
		}
	})
}

func TestSentBacklogIsTrimmedInParts(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.limiter(t, kit.Rules("9/1h", "9/1h", ""), time.Hour)
		old := s.Time(t.Context()).Val().Add(-2 * time.Hour).UnixMicro()
		var stale []redis.Z
		for i := range 1500 {
			stale = append(stale, zAt(old, fmt.Sprint("a:", i)))
		}
		kit.Check(t, s.ZAdd(t.Context(), "{n}:sent", stale...).Err())
		c.admits(event("e", "a"))
		c.sent(event("e", "a"))
		if n := s.ZCount(t.Context(), "{n}:sent", "-inf", fmt.Sprint(old)).Val(); n != 500 {
			t.Errorf("%d stale ids are left, expected 500", n)
		}
	})
}
