package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// Other clients can damage keys. An error names a key of another type; damaged entries expire.

const century = 100 * 365 * 24 * time.Hour

// takesNothing stores a value of another type under a key. The call must fail with the name of the key and
// change nothing.
func (s *store) takesNothing(t *testing.T, key string, call func() error) {
	t.Helper()
	s.Del(t.Context(), key)
	s.Set(t.Context(), key, "somebody else's", 0)
	before := s.contents(t)
	var damaged ratelimit.DamagedKey
	if err := call(); !errors.As(err, &damaged) || damaged.Key != key || !strings.Contains(err.Error(), key) {
		t.Errorf("%v, expected an error that names %s", err, key)
	}
	if !strings.Contains(damaged.Error(), "remove it") {
		t.Errorf("%q does not say what to do", damaged)
	}
	s.unchanged(t, before)
	s.Del(t.Context(), key)
}

func TestKeyOfAnotherTypeFailsTheBatch(t *testing.T) {
	scopes := []string{"global", "buckets:global", "group:a", "buckets:group:a", "category:a", "buckets:category:a", "category:r"}
	eachStore(t, func(t *testing.T, s *store) {
		rules := grouped("100/30m", "5/10m:1m", "9/30m")
		rules.Overrides = pattern.MustTable(map[string]ratelimit.Limit{"r": mustParse("5/10m")})
		rules.Reserve = map[string]int{"r": 1}
		limiter := s.limiter(t, rules, day)
		for _, name := range append(scopes, "inflight", "sent", "meta") {
			s.FlushAll(t.Context())
			limiter.admits(event("before", "b"))
			s.takesNothing(t, "{n}:"+name, func() error {
				decisions, err := limiter.Admit(t.Context(), []ratelimit.Request{event("f", "b"), event("e", "a")})
				if decisions != nil {
					t.Errorf("%+v beside %v", decisions, err)
				}
				return err
			})
			limiter.admits(event("e", "a"))
		}
		s.Set(t.Context(), "{n}:category:b", "somebody else's", 0)
		limiter.admits(event("f", "a")) // a batch needs only the keys of its own categories
	})
}

func TestKeyOfAnotherTypeFailsEveryCall(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter, ctx := s.paced(t, "2/10s"), t.Context()
		e := event("e", "a")
		begin := func() error {
			_, err := limiter.Begin(ctx, ratelimit.Post{Channel: aChannel, Name: "p1", Longest: aPost, First: true})
			return err
		}
		answered := func(answer ratelimit.Answer) func() error {
			answer.Channel, answer.Name = aChannel, "p1"
			return func() error { _, _, err := limiter.Answered(ctx, answer); return err }
		}
		waits := func() error {
			post := ratelimit.Post{Channel: aChannel, Name: "p2", Longest: aPost, Worker: "w"}
			_, err := limiter.Begin(ctx, post)
			return err
		}
		ofPosts := []func() error{
			begin, answered(ratelimit.Answer{Posted: true}), answered(ratelimit.Answer{RetryAfter: time.Second}),
		}
		refund := []func() error{func() error {
			refunded, err := limiter.Refund(ctx, e, "")
			if refunded && err != nil {
				t.Errorf("refunded beside %v", err)
			}
			return err
		}}
		sent := func() error { return limiter.Sent(ctx, e) }
		ofSlots := []func() error{sent, answered(ratelimit.Answer{Request: e, Posted: true}), func() error {
			_, err := limiter.Begin(ctx, ratelimit.Post{Request: e, Channel: aChannel, Name: "p1", Longest: aPost, First: true})
			return err
		}}
		for name, calls := range map[string][]func() error{
			"meta":             {func() error { return limiter.Ready(ctx) }},
			"sent":             {sent},
			"category:a":       append(ofSlots, func() error { _, err := limiter.Peek(ctx, "b", "a"); return err }),
			"group:a":          ofSlots,
			"inflight":         append(refund, answered(ratelimit.Answer{Request: e, Failed: true})),
			"global":           append(ofSlots, refund...),
			"buckets:global":   refund,
			"pauses":           append(ofPosts, func() error { _, err := limiter.Pauses(ctx); return err }),
			"probes":           ofPosts,
			"pace:" + aChannel: ofPosts,

			"pacewaiting:" + aChannel: {waits},
		} {
			for _, call := range calls {
				s.FlushAll(ctx)
				limiter.admits(e)
				limiter.refusedInTwo("p0", time.Second)
				s.advance(t, time.Second) // so that the next post is a probe
				s.takesNothing(t, "{n}:"+name, call)
				if err := call(); err != nil {
					t.Errorf("%s, once the key is removed: %v", name, err)
				}
			}
		}
	})
}

// No decision depends on the index of categories. If its key has another type, events are decided as usual,
// and the key is left untouched.
func TestIndexOfAnotherTypeStopsNothing(t *testing.T) {
	eachLimiter(t, "9/30m", "3/30m", func(t *testing.T, s *store, limiter caller) {
		const index = "{n}:categories"
		kit.Check(t, s.HSet(t.Context(), index, "a", "b").Err())
		before := s.contents(t)
		limiter.admits(events(3, "e", "a")...)
		limiter.want(ratelimit.Category, event("f", "a"))
		limiter.sent(event("e-1", "a"))
		limiter.refunds(event("e-2", "a"))
		kit.Check(t, limiter.Ready(t.Context()))
		s.charged(t, 2)
		for _, key := range s.Keys(t.Context(), "*").Val() {
			if key != index {
				s.Del(t.Context(), key)
			}
		}
		s.unchanged(t, before)
	})
}

// A member that is not a bucket cannot be counted, so the call fails with the name of the key.
func TestWhatIsNoBucketFailsTheCall(t *testing.T) {
	eachLimiter(t, "9/30m:1m", "5/10m:1m", func(t *testing.T, s *store, limiter caller) {
		limiter.admits(event("before", "a"))
		clock, _ := s.clock(t)
		for _, name := range []string{"", "x", "1 2", "1 2 3 4", "-1 2 3", "nan nan nan", "0 1e3 5"} {
			s.put(t, "{n}:buckets:category:a", clock+time.Hour.Microseconds(), name)
			before := s.contents(t)
			decisions, err := limiter.Admit(t.Context(), []ratelimit.Request{event("f", "b"), event("e", "a")})
			if decisions != nil || err == nil || !strings.Contains(err.Error(), "{n}:buckets:category:a") {
				t.Errorf("%q: %v, %v; expected an error that names the key", name, decisions, err)
			}
			s.unchanged(t, before)
			s.ZRem(t.Context(), "{n}:buckets:category:a", name)
		}
		limiter.admits(event("e", "a"))
	})
}

func TestRecordOfAnotherFormIsNone(t *testing.T) {
	eachLimiter(t, "100/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
		for i, record := range []string{"", "garbage", "12 ", " ", "x:1:2:y z", strings.Repeat("9", 400), "-1 message of e", "1e300 message of e", strings.Repeat("\x00", 1<<16)} {
			e := event(fmt.Sprint("e", i), "a")
			s.HSet(t.Context(), "{n}:inflight", slot(e), record)
			if limiter.refund(e) {
				t.Errorf("record %.20q is refunded", record)
			}
			limiter.wantPermit(ratelimit.NotInFlight, 0, e, "", "p")
			limiter.admits(e)
			limiter.posts(1, e, "", "p")
			s.FlushAll(t.Context())
		}
	})
}

func TestEntryFarAheadIsNotCounted(t *testing.T) {
	eachLimiter(t, "3/30m", "2/30m", func(t *testing.T, s *store, limiter caller) {
		limiter.admit(event("before", "a"))
		now := s.takenAt(t, "{n}:global", "a:before")
		for _, ahead := range []time.Duration{25 * time.Hour, century} {
			future := now + ahead.Microseconds()
			for _, key := range []string{"{n}:global", "{n}:category:a"} {
				s.ZAdd(t.Context(), key, zAt(future, "x"), zAt(future+1, "y"), zAt(future+2, "z"))
				s.Persist(t.Context(), key)
			}
			usages := limiter.peek("a")
			for _, usage := range usages {
				if usage.Used != 1 || usage.FreeIn != 0 {
					t.Errorf("%+v, expected one used and room", usage)
				}
			}
		}
		limiter.admits(event("e", "a"))
		if clock, lag := s.clock(t); lag > 1000 || clock-now > time.Minute.Microseconds() {
			t.Errorf("the clock is %d us ahead", lag)
		}
		limiter.want(ratelimit.Category, event("f", "a")) // before and e hold both slots of a
		limiter.admits(event("g", "b"))
		if got := limiter.one(event("h", "c")); got.Verdict != ratelimit.Global || got.RetryAfter > 30*time.Minute {
			t.Errorf("%+v, expected a refusal for half an hour", got)
		}
		for _, key := range []string{"{n}:global", "{n}:category:a"} {
			if left := s.TTL(t.Context(), key).Val(); left <= 0 || left > time.Hour {
				t.Errorf("%s lives for %s", key, left)
			}
		}
	})
}

func TestPausesAreBounded(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.anyLimiter(t)
		clock, _ := limiter.micros(s)
		for _, scope := range []string{"*", aChannel} {
			s.ZAdd(t.Context(), "{n}:pauses", zAt(clock+century.Microseconds(), scope))
		}
		limiter.paused(s, "", 0)
		limiter.postsTo(aChannel, "p1")
		limiter.refusedInTwo("p1", century) // a pause that Slack requests is bounded too
		limiter.paused(s, "", ratelimit.LongestPause)
		limiter.paused(s, aChannel, ratelimit.LongestPause)
		s.advance(t, ratelimit.LongestPause+time.Second)
		limiter.paused(s, "", 0)
		limiter.paused(s, aChannel, 0)
	})
}

// micros returns the store's clock in microseconds, and how far the deciding clock is ahead of it.
func (c caller) micros(s *store) (clock, lag int64) {
	c.t.Helper()
	if err := c.Ready(context.WithoutCancel(c.t.Context())); err != nil {
		c.t.Fatal(err)
	}
	return s.clock(c.t)
}

// aboutPermission matches the errors of Redis 7 and 8, and of Valkey.
var aboutPermission = regexp.MustCompile("can't run this command|NOPERM|no permissions to run")

// A missing permission fails the call. It is not mistaken for a damaged key.
func TestMissingPermissionIsNoDamage(t *testing.T) {
	s := onProcess(t)
	for _, missing := range []string{"hmget", "zmscore"} {
		s.server.SetUser(t, "word", "worker", "~*", "+@all", "-"+missing)
		limiter := limiterAt(t, "redis://worker:word@"+s.server.Addr)
		decisions, err := limiter.Admit(t.Context(), events(1, "e", "a"))
		if missing == "hmget" && (err == nil || decisions != nil || !aboutPermission.MatchString(err.Error())) {
			t.Errorf("without %s: %v, %v; expected an error about the permission", missing, decisions, err)
		}
		permit, err := limiter.Begin(t.Context(), ratelimit.Post{Channel: aChannel, Name: "p", Longest: time.Second})
		if missing == "zmscore" && err == nil {
			t.Errorf("without %s: %+v, expected an error", missing, permit)
		}
	}
}

func TestProbesAreBounded(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.anyLimiter(t)
		clock, _ := limiter.micros(s)
		s.ZAdd(t.Context(), "{n}:pauses", zAt(clock+3560*time.Second.Microseconds(), aChannel))
		s.HSet(t.Context(), "{n}:probes", aChannel, fmt.Sprintf("%d %d other", clock, century.Microseconds()))
		s.advance(t, 3570*time.Second)
		limiter.wantDigest(ratelimit.ChannelPaused, aChannel, "p1")
		s.advance(t, 31*time.Second)
		limiter.postsTo(aChannel, "p1")
		s.HSet(t.Context(), "{n}:probes", aChannel, "garbage")
		limiter.postsTo(aChannel, "p2")
	})
}

func TestSlotFarInTheFutureIsNoPost(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "2/10s")
		clock, _ := limiter.micros(s)
		for i := range 5 {
			s.ZAdd(t.Context(), "{n}:pace:"+aChannel, zAt(clock+century.Microseconds(), fmt.Sprint("x", i)))
		}
		limiter.postsTo(aChannel, "p1")
		if n := s.count(t, "{n}:pace:"+aChannel); n != 1 {
			t.Errorf("%d slots are kept, expected that of the post", n)
		}
	})
}

// put adds entries with one score, as another client could.
func (s *store) put(t testing.TB, key string, score any, names ...string) {
	t.Helper()
	for _, name := range names {
		kit.Check(t, s.Do(t.Context(), "ZADD", key, score, name).Err())
	}
}

// A damaged entry with a long run of digits is parsed in linear time.
func TestLongRecordIsReadAtOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		if s.embedded != nil {
			t.Skip("its Lua does not read such numbers")
		}
		limiter := s.limiter(t, kit.Rules("100/30m", "5/10m:1m", ""), day)
		e, f, long := event("e", "a"), event("f", "a"), strings.Repeat("9", 1<<18)
		limiter.admits(f)
		s.put(t, "{n}:buckets:category:a", s.latestAdmission(t), long+"x")
		began := time.Now()
		limiter.refund(f)
		s.HSet(t.Context(), "{n}:inflight", slot(e), long)
		limiter.refund(e)
		limiter.admit(e)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s, expected a moment", took)
		}
	})
}

// decides admits a batch beside damaged entries. The call may fail, but no decision may be impossible.
func (c caller) decides(what string, n int) {
	c.t.Helper()
	batch := []ratelimit.Request{
		event(fmt.Sprint("x", n), "a"), event(fmt.Sprint("x", n), "b"), costing(event(fmt.Sprint("y", n), "a"), 2),
	}
	decisions, _ := c.Admit(c.t.Context(), batch)
	for _, decision := range decisions {
		if decision.RetryAfter < 0 || decision.RetryAfter > 62*day || decision.Used < 0 {
			c.t.Errorf("%s: %+v", what, decision)
		}
	}
	_, _ = c.Peek(c.t.Context(), "a", "b") // may fail too
}

// Damaged entries expire with their set. Then decisions are as usual again.
func TestDamagedEntriesExpire(t *testing.T) {
	names := []string{"", "x", "1 2 3 4", "0 999999 5", "9 2 3", "-1 2 3", "0 1e3 5"}
	numbers := []string{"0 99999999999999999999 5", "99999999999999999999 5 5", strings.Repeat("9", 400) + " 1 1"}
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "2/10m:1m", ""), time.Hour)
		keys := []string{"{n}:buckets:category:a", "{n}:category:a", "{n}:global", "{n}:sent", "{n}:categories"}
		names := names
		if s.embedded == nil { // the embedded Lua cannot read such numbers
			names = append(slices.Clone(names), numbers...)
		}
		for _, key := range keys {
			for _, score := range []time.Duration{-time.Second, time.Minute, century} {
				for i, name := range names {
					if key != keys[0] && i > 1 { // only the names of buckets are parsed
						continue
					}
					s.FlushAll(t.Context())
					first := event("first", "a")
					limiter.admits(first)
					limiter.sent(first)
					kit.Check(t, s.ZAdd(t.Context(), "{n}:category:a", zAt(s.latestAdmission(t), "one")).Err())
					s.PExpire(t.Context(), "{n}:category:a", 10*time.Minute)
					s.put(t, key, s.latestAdmission(t)+score.Microseconds(), name)
					what := fmt.Sprintf("%.24q in %s, %s ahead", name, key, score)
					limiter.decides(what, i)
					s.advance(t, 45*time.Minute)
					limiter.admits(event("later", "a"))
				}
			}
		}
	})
}

// Damaged fields of the meta hash do not stop decisions, and every key still expires.
func TestDamagedMetaStopsNothing(t *testing.T) {
	eachLimiter(t, "100/30m", "5/10m", func(t *testing.T, s *store, limiter caller) {
		for _, field := range []string{"clock", "token", "opens", "seen ", "x"} {
			for _, value := range []string{"", "x", "-5", "0.5", "nan", "inf", "-inf", "1e300", "1e17", "0x10"} {
				s.FlushAll(t.Context())
				kit.Check(t, s.HSet(t.Context(), "{n}:meta", field, value).Err())
				for i, e := range events(5, "e", "a") {
					if decisions, err := limiter.Admit(t.Context(), []ratelimit.Request{e}); err != nil || decisions[0].Verdict != ratelimit.Admitted {
						t.Fatalf("%s is %q, event %d: %+v, %v", field, value, i, decisions, err)
					}
					limiter.sent(e)
				}
				limiter.want(ratelimit.Category, event("f", "a"))
				for _, key := range s.Keys(t.Context(), "*").Val() {
					if left := s.PTTL(t.Context(), key).Val(); left < 0 || left > 33*day {
						t.Errorf("%s is %q: %s is kept for %s", field, value, key, left)
					}
				}
			}
		}
	})
}

// If the stored clock is more than a day ahead, an event is recorded as sent by the server's clock.
func TestSentIgnoresAClockFarAhead(t *testing.T) {
	eachLimiter(t, "100/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
		e := event("e", "a")
		limiter.admits(e)
		clock, _ := s.clock(t)
		s.setClock(t, clock+century.Microseconds())
		limiter.sent(e)
		if at := s.score(t, "{n}:sent", slot(e)); at > clock+time.Minute.Microseconds() {
			t.Errorf("recorded as sent %s ahead", time.Duration(at-clock)*time.Microsecond)
		}
		s.setClock(t, clock+century.Microseconds())
		if usages, err := limiter.Peek(t.Context(), "a"); err != nil || usages[0].Used != 1 || usages[1].Used != 1 {
			t.Errorf("%+v, %v, expected one slot to be used still", usages, err)
		}
	})
}

// A slot with an infinite score does not fail the refund of another event.
func TestRefundBesideAnInfiniteScore(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		if s.embedded != nil {
			t.Skip("its Lua does not read such numbers")
		}
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		limiter.admits(e)
		s.put(t, "{n}:category:a", "+inf", "x")
		limiter.refunds(e)
	})
}

// A server's clock steps back when it is corrected, or when a Redis replica with a clock behind takes over.
// After a step of less than a day, the limiter's clock stands still at the newest admission.

// setClock sets the stored clock, the latest score in any log.
func (s *store) setClock(t testing.TB, at int64) {
	t.Helper()
	kit.Check(t, s.HSet(t.Context(), "{n}:meta", "clock", at).Err())
}

// latestAdmission returns the stored clock in microseconds. No decision is earlier.
func (s *store) latestAdmission(t testing.TB) int64 {
	t.Helper()
	at, err := s.HGet(t.Context(), "{n}:meta", "clock").Int64()
	kit.Check(t, err)
	return at
}

// takenAt returns the admission time, in microseconds, of an event with an unmoved slot in a log.
func (s *store) takenAt(t testing.TB, log, member string) int64 {
	t.Helper()
	for _, entry := range s.ZRangeWithScores(t.Context(), log, 0, -1).Val() {
		if entry.Member == fmt.Sprintf("%s %.0f", member, entry.Score) {
			return int64(entry.Score)
		}
	}
	t.Fatalf("%s has no slot in %s:\n%s", member, log, s.contents(t))
	return 0
}

// If the clock was set back by days, buckets lie ahead. They keep their order and count, so no window exceeds
// its limit.
func TestBucketsAheadKeepTheirOrder(t *testing.T) {
	eachLimiter(t, "100/1h:1m", "9/1h:1m", func(t *testing.T, s *store, limiter caller) {
		for i := range 3 {
			limiter.admits(events(2, fmt.Sprint(i), "a")...)
			s.advance(t, 2*time.Minute)
		}
		s.advance(t, -3*day)
		for i := range 3 {
			limiter.admits(event(fmt.Sprint("back ", i), "a"))
			if usages, err := limiter.Peek(t.Context(), "a"); err != nil || usages[1].Used != 7+i {
				t.Errorf("%+v, %v; expected %d used", usages, err, 7+i)
			}
		}
		limiter.want(ratelimit.Category, event("x", "a"))
	})
}
