package ratelimit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// Edges of the scripts that no other test comes near.

func TestTokenOfAStoreExpires(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		s.quarantine(t, "g1")
		if left := s.PTTL(t.Context(), "{n}:meta").Val(); left < 31*day || left > 33*day {
			t.Errorf("it expires in %s, expected 32 days", left)
		}
	})
}

func TestRefundFromTheLogLeavesTheBuckets(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		exact, buckets := kit.Rules("9/1h", "9/1h", ""), kit.Rules("9/1h:1m", "9/1h:1m", "")
		s.limiter(t, buckets, day).admits(events(3, "b", "a")...)
		c := s.limiter(t, exact, day)
		c.admits(event("e", "a"))
		c.refunds(event("e", "a"))
		s.wantUsed(t, exact, 3)
	})
}

// A caller may know a post of which the store knows nothing: the record was put back without it.
func TestUnpostedEventIsAlwaysRefunded(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.limiter(t, kit.Rules("9/1h", "9/1h", ""), day)
		c.admits(event("e", "a"))
		if !c.refundAfter(event("e", "a"), "a post") {
			t.Error("nothing was refunded")
		}
	})
}

func TestPeekNamesWhenEnoughSlotsFree(t *testing.T) {
	for name, test := range map[string]struct {
		limit string
		wait  time.Duration
	}{
		"a full tier":             {"5/30m", 25 * time.Minute},
		"more than a tighter one": {"3/30m", 27 * time.Minute},
		"beside stale slots":      {"9/30m+2/3m", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				c := s.limiter(t, kit.Rules("9/30m", "9/30m", ""), day)
				for i := range 5 {
					c.admits(event(fmt.Sprint(i), "a"))
					s.advance(t, time.Minute)
				}
				usages, err := s.limiter(t, kit.Rules(test.limit, "9/30m", ""), day).Peek(t.Context())
				kit.Check(t, err)
				tiers := strings.Count(test.limit, "+")
				if got := usages[tiers].FreeIn; got > test.wait || got < test.wait-10*time.Second {
					t.Errorf("%+v, expected %s", usages[tiers], test.wait)
				}
			})
		})
	}
}

func TestPeekLooksAtTheLogBesideBuckets(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		s.limiter(t, kit.Rules("9/30m", "9/30m", ""), day).admits(event("e", "a"))
		s.advance(t, 10*time.Minute)
		buckets := s.limiter(t, kit.Rules("2/30m:1m", "9/30m:1m", ""), day)
		buckets.admits(event("f", "a"))
		usages, err := buckets.Peek(t.Context())
		if err != nil || usages[0].FreeIn > 20*time.Minute || !usages[0].AtLeast {
			t.Errorf("%+v, %v; expected 20 minutes at least", usages, err)
		}
	})
}

// A cost that was valid for another form of the limit is refused for good where the scope is a log.
func TestLogTakesNoCostAboveAThousand(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.limiter(t, kit.Rules("5000/30m", "5000/30m", ""), day)
		decisions, err := c.Admit(t.Context(), []ratelimit.Request{costing(event("e", "a"), 1001)})
		if err == nil && (decisions[0].Verdict == ratelimit.Admitted || !decisions[0].Never) {
			t.Errorf("%+v, expected that it never fits", decisions)
		}
		if n := s.Exists(t.Context(), "{n}:global").Val(); n != 0 {
			t.Error("slots were taken")
		}
	})
}

func TestRedeliveryShowsTheAdmission(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.limiter(t, kit.Rules("9/1h", "9/1h", ""), day)
		e := event("e", "a")
		c.admits(e)
		s.advance(t, time.Second)
		c.posts(1, e, "", "first")
		admitted, _, _ := strings.Cut(s.HGet(t.Context(), "{n}:inflight", slot(e)).Val(), ":")
		c.admits(e)
		if earlier := fmt.Sprint(s.latest().([]any)[5]); earlier != "[1 "+admitted+"]" {
			t.Errorf("earlier is %s, expected [1 %s]", earlier, admitted)
		}
	})
}

// A record is forgotten a month after its last post, and one that cannot be read is left alone.
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

// A replica that is gone for a month is forgotten, and nothing else of the store is.
func TestReplicasThatAreGoneAreForgotten(t *testing.T) {
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

// Clean-up fails no decision: users of v0.1.0 may not run HRANDFIELD.
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

// A batch that writes many records looks at more of the old ones.
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

func TestPaceOfAChannelExpires(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.limiter(t, kit.Rules("9/1h", "9/1h", ""), day)
		c.admits(event("e", "a"))
		c.posts(1, event("e", "a"), "", "first")
		paces := s.Keys(t.Context(), "{n}:pace:*").Val()
		if len(paces) != 1 || s.PTTL(t.Context(), paces[0]).Val() < time.Hour {
			t.Errorf("paces %q, expected one that expires in three hours", paces)
		}
	})
}
