package ratelimit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/lua"
	"notifier/test/kit"
)

// What restore.lua leaves as it is, and how long what it puts back is kept.

func TestWhatIsPutBackExpires(t *testing.T) {
	for name, limit := range map[string]string{"exact": "9/10m", "buckets": "9/10m:1m"} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				c := s.remembering(t, "r", kit.Rules(limit, limit, ""), time.Hour)
				c.want(ratelimit.Admitted, events(3, "e", "a")...)
				c.sent(event("e-1", "a"))
				s.empty(t)
				s.putsBack(t, c)
				keys := s.Keys(t.Context(), "*").Val()
				if len(keys) != 6 { // meta, in flight, sent, the index, and both scopes
					t.Errorf("keys %q, expected 6", keys)
				}
				for _, key := range keys {
					least := 9 * time.Minute
					if key == "{n}:categories" {
						least += time.Hour // as long as an id is known
					}
					if left := s.PTTL(t.Context(), key).Val(); left < least {
						t.Errorf("%s expires in %s, expected %s at least, and an end", key, left, least)
					}
				}
			})
		})
	}
}

// What is wrong with the index keeps nothing else from being put back, and a foreign key is left as it is.
func TestAnIndexOfAnotherTypeIsLeftAsItIs(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		c.want(ratelimit.Admitted, event("e", "a"))
		s.empty(t)
		kit.Check(t, s.Set(t.Context(), "{n}:categories", "foreign", 0).Err())
		s.putsBack(t, c)
		if n := s.ZCard(t.Context(), "{n}:global").Val(); n != 1 {
			t.Errorf("%d slots, expected 1", n)
		}
		if got, ends := s.Get(t.Context(), "{n}:categories").Val(), s.TTL(t.Context(), "{n}:categories").Val(); got != "foreign" || ends != -1 {
			t.Errorf("the foreign key holds %q and expires in %s, expected that it is as it was", got, ends)
		}
	})
}

// A replica that knows shorter windows puts back, too.
func TestPuttingBackShortensNoExpiry(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		longer := s.remembering(t, "a", kit.Rules("9/1h", "9/1h", ""), day)
		shorter := s.remembering(t, "b", kit.Rules("9/10m", "9/10m", ""), day)
		longer.want(ratelimit.Admitted, event("e", "a"))
		shorter.want(ratelimit.Admitted, event("f", "a"))
		s.empty(t)
		s.putsBack(t, longer, shorter)
		if left := s.PTTL(t.Context(), "{n}:global").Val(); left < 59*time.Minute {
			t.Errorf("the log expires in %s, expected an hour", left)
		}
	})
}

func TestALongLogIsPutBackWhole(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("1000/30m", "1000/30m", "")
		c := s.remembering(t, "r", rules, day)
		c.want(ratelimit.Admitted, costing(event("e", "a"), 900))
		s.empty(t)
		s.putsBack(t, c)
		s.wantUsed(t, rules, 900)
	})
}

// What was admitted in one call has one time, and is put back in one call, however much it is.
func TestALargeBatchIsPutBackWhole(t *testing.T) {
	for name, limit := range map[string]string{"exact": "1000/30m", "buckets": "1000/30m:1m"} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				rules := kit.Rules(limit, limit, "")
				c := s.remembering(t, "r", rules, day)
				_, err := c.Admit(t.Context(), events(700, "e", "a"))
				kit.Check(t, err)
				s.empty(t)
				s.putsBack(t, c)
				s.wantUsed(t, rules, 700)
			})
		})
	}
}

// An event is remembered from its last post on.
func TestAPostIsRememberedLongerThanItsAdmission(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.remembering(t, "r", kit.Rules("9/10m", "9/10m", ""), time.Second)
		e := event("e", "a")
		c.want(ratelimit.Admitted, e)
		c.pass(s, 9*time.Minute)
		c.wantPermit(ratelimit.Granted, 1, e, "", "p1")
		c.JournalTimes(e, s.Time(t.Context()).Val().UnixMicro(), 0)
		c.pass(s, 2*time.Minute)
		c.want(ratelimit.Admitted, event("another", "a")) // what is over is forgotten
		s.empty(t)
		s.putsBack(t, c)
		c.wantPermit(ratelimit.Granted, 2, e, "p1", "p2")
	})
}

// An event that was refunded elsewhere, and then admitted anew and refunded here, is not in flight again by
// its first admission.
func TestAnEarlierAdmissionIsNotInFlightAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("9/10m", "9/10m", "")
		a, b := s.remembering(t, "a", rules, day), s.remembering(t, "b", rules, day)
		e := event("e", "x")
		a.want(ratelimit.Admitted, e)
		b.want(ratelimit.Admitted, e)
		b.refund(e)
		a.want(ratelimit.Admitted, by("another", e))
		a.refund(by("another", e))
		s.empty(t)
		s.putsBack(t, a)
		if records := s.HGetAll(t.Context(), "{n}:inflight").Val(); len(records) != 0 {
			t.Errorf("in flight: %v, expected nothing", records)
		}
	})
}

// Several buckets are put back in one call, beside one that is there.
func TestEachBucketIsPutBackInItsPlace(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("9/10m:1m", "9/10m:1m", "")
		c := s.remembering(t, "r", rules, day)
		c.want(ratelimit.Admitted, events(2, "e", "a")...)
		mark := s.HGet(t.Context(), "{n}:meta", "seen r").Val()
		for i := range 2 {
			c.pass(s, 2*time.Minute)
			c.want(ratelimit.Admitted, event(fmt.Sprint("later ", i), "a"))
		}
		before := s.ZRange(t.Context(), "{n}:buckets:global", 0, -1).Val()
		if s.embedded == nil {
			mark = "0" // it grew older: all is later than this
			s.Del(t.Context(), "{n}:buckets:global")
		} else {
			s.ZRem(t.Context(), "{n}:buckets:global", before[1], before[2])
		}
		kit.Check(t, s.HSet(t.Context(), "{n}:meta", "seen r", mark).Err())
		s.putsBack(t, c)
		after := s.ZRange(t.Context(), "{n}:buckets:global", 0, -1).Val()
		if s.embedded == nil && len(after) != 3 || s.embedded != nil && !slices.Equal(after, before) {
			t.Errorf("buckets %q, expected as before: %q", after, before)
		}
		s.wantUsed(t, rules, 4)
	})
}

// A clock, a mark and admissions from before a clock was set right, days ahead, move nothing.
func TestTimesFarAheadAreNotPutBack(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("9/10m:1m", "9/10m:1m", "")
		c := s.remembering(t, "r", rules, day)
		c.want(ratelimit.Admitted, event("ahead", "a"), event("sent ahead", "a"))
		c.sent(event("sent ahead", "a"))
		s.empty(t)
		c.pass(s, -3*day) // what it remembers lies three days ahead
		c.want(ratelimit.Admitted, event("e", "a"))
		clock, _ := s.clock(t)
		s.empty(t)
		ahead := clock + 3*day.Microseconds()
		kit.Check(t, s.HSet(t.Context(), "{n}:meta", "clock", ahead, "seen r", ahead).Err())
		s.putsBack(t, c)
		s.wantUsed(t, rules, 1) // that of the one event of now
		if latest := s.latestAdmission(t); latest > clock+time.Minute.Microseconds() {
			t.Errorf("the latest admission is %d, expected about %d", latest, clock)
		}
		if sent := s.ZCard(t.Context(), "{n}:sent").Val(); sent != 0 {
			t.Errorf("%d ids were sent, expected none", sent)
		}
		if active := s.score(t, "{n}:categories", "a"); active > clock+time.Minute.Microseconds() {
			t.Errorf("the category was active at %d, expected about %d", active, clock)
		}
	})
}

// What the store has that is later stays: a mark, a time of sending, the record of a later post, an event
// admitted anew.
func TestPuttingBackReplacesNothingLater(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.remembering(t, "r", kit.Rules("9/10m", "9/10m", ""), day)
		posted, sent, again := event("posted", "a"), event("sent", "a"), event("again", "a")
		unsettled := event("unsettled", "a")
		c.want(ratelimit.Admitted, posted, sent, again, unsettled)
		c.wantPermit(ratelimit.Granted, 1, posted, "", "first")
		c.wantPermit(ratelimit.Granted, 1, unsettled, "", "other")
		c.sent(sent)
		c.sent(again)
		later := s.Time(t.Context()).Val().Add(time.Minute).UnixMicro()
		s.ZAdd(t.Context(), "{n}:sent", zAt(later, slot(sent)))
		s.HSet(t.Context(), "{n}:meta", "seen r", later)
		s.ZAdd(t.Context(), "{n}:categories", zAt(later, "a"))
		since, _, _ := strings.Cut(s.HGet(t.Context(), "{n}:inflight", slot(posted)).Val(), ":")
		record := fmt.Sprintf("%s:2:%d:second elsewhere", since, later)
		anew := fmt.Sprintf("%d:0:0: elsewhere", later)
		s.HSet(t.Context(), "{n}:inflight", slot(posted), record, slot(again), anew,
			slot(unsettled), anew)

		s.putsBack(t, c)
		if got := s.score(t, "{n}:sent", slot(sent)); got != later {
			t.Errorf("sent at %d, expected %d", got, later)
		}
		if got := s.score(t, "{n}:categories", "a"); got != later {
			t.Errorf("the last admission of the category was at %d, expected %d", got, later)
		}
		want := map[string]string{slot(posted): record, slot(again): anew, slot(unsettled): anew}
		if difference := cmp.Diff(want, s.HGetAll(t.Context(), "{n}:inflight").Val()); difference != "" {
			t.Errorf("in flight (-want +got):\n%s", difference)
		}
		if got := s.HGet(t.Context(), "{n}:meta", "seen r").Val(); got != fmt.Sprint(later) {
			t.Errorf("the mark is %s, expected %d", got, later)
		}
	})
}

// A record that the store has is not written again, which would also let it live longer.
func TestPresentRecordIsNotPutBack(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		c.admits(event("e", "a"))
		kit.Check(t, s.PExpire(t.Context(), "{n}:inflight", time.Minute).Err())
		s.putsBack(t, c)
		if left := s.PTTL(t.Context(), "{n}:inflight").Val(); left > time.Minute {
			t.Errorf("the record expires in %s, expected a minute", left)
		}
	})
}

func TestWhatNoWindowHasIsNotInFlightAgain(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		c.want(ratelimit.Admitted, event("e", "a"))
		c.pass(s, 11*time.Minute)
		s.empty(t)
		s.putsBack(t, c)
		if record := s.HGetAll(t.Context(), "{n}:inflight").Val(); len(record) != 0 {
			t.Errorf("in flight: %v, expected nothing", record)
		}
	})
}

// What is in Slack does not get in flight again when its id is forgotten.
func TestWhatWasSentIsNotInFlightAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.remembering(t, "r", kit.Rules("9/10m", "9/10m", ""), time.Second)
		c.want(ratelimit.Admitted, event("e", "a"))
		c.sent(event("e", "a"))
		c.pass(s, time.Minute)
		s.empty(t)
		s.putsBack(t, c)
		if records := s.HGetAll(t.Context(), "{n}:inflight").Val(); len(records) != 0 {
			t.Errorf("in flight: %v, expected nothing", records)
		}
		if n := s.ZCard(t.Context(), "{n}:sent").Val(); n != 0 {
			t.Errorf("%d ids were sent, expected none: its id is forgotten", n)
		}
		if n := s.ZCard(t.Context(), "{n}:global").Val(); n != 1 {
			t.Errorf("%d slots, expected 1", n)
		}
	})
}

// restore calls restore.lua with nothing to put back.
func (s *store) restore(t *testing.T, token string) []any {
	t.Helper()
	keys := []string{"{n}:meta", "{n}:inflight", "{n}:sent", "{n}:categories"}
	reply, err := redis.NewScript(lua.Restore).Run(t.Context(), s.Client, keys,
		token, "r", day.Microseconds(), day.Microseconds(), 500_000, 30_000_000, 0, 0).Slice()
	kit.Check(t, err)
	return reply
}

func TestOnlyTheKnownStoreIsPutBackInto(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		s.quarantine(t, "g1")
		before := s.contents(t)
		if got := s.restore(t, "g2 1"); got[0] != int64(0) {
			t.Errorf("%v, expected 0: it is another store", got)
		}
		s.unchanged(t, before)
	})
}

func TestTheOpeningIsPutOffForThirtySecondsAtMost(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		token, _ := s.quarantine(t, "g1")
		s.advance(t, 29_800*time.Millisecond)
		if s.embedded == nil { // the token's time does not grow older
			made := s.Time(t.Context()).Val().Add(-29_800 * time.Millisecond).UnixMicro()
			token = fmt.Sprint("g1 ", made)
			kit.Check(t, s.HSet(t.Context(), "{n}:meta", "token", token).Err())
		}
		if got := s.restore(t, token); got[0] != int64(1) {
			t.Fatalf("%v, expected 1", got)
		}
		if _, wait := s.quarantine(t, "g1"); wait > 200*time.Millisecond {
			t.Errorf("the store opens in %s, expected 200ms", wait)
		}
	})
}
