package ratelimit_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/internal/testkit"
)

// everything is all that a store holds under keys of the limiter, and when it expires; what belongs to the healing aside.
func (s *store) everything(t testing.TB) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, key := range s.Keys(t.Context(), "{n}:*").Val() {
		if strings.HasSuffix(key, ":healing") || strings.HasSuffix(key, ":categories") {
			continue
		}
		switch kind := s.Type(t.Context(), key).Val(); kind {
		case "zset":
			for _, entry := range s.ZRangeWithScores(t.Context(), key, 0, -1).Val() {
				if entry.Member != " healed" {
					all[fmt.Sprint(key, " ", entry.Member)] = fmt.Sprintf("%.0f", entry.Score)
				}
			}
		case "hash":
			for field, value := range s.HGetAll(t.Context(), key).Val() {
				all[key+" "+field] = value
			}
		default:
			t.Fatalf("%s is a %s", key, kind)
		}
	}
	return all
}

// healedAgain waits until a replica has healed the store after it was emptied.
func (m *member) healedAgain() {
	m.t.Helper()
	testkit.EventuallyNil(m.t, func() error { return m.Ready(m.t.Context()) })
}

// All that a store had is there again after it was emptied, to the microsecond: slots, records with their posts, what was sent. What
// was refunded is not.
func TestAnEmptiedStoreIsAsItWas(t *testing.T) {
	for name, limit := range map[string]string{"exact": "100/30m", "buckets": "100/30m:1m", "fixed": "100/24h:fixed"} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				rules := testkit.Rules(limit, limit, "big=50/1h:1m")
				rules.Group = mustParse(limit)
				m := newFleet(t, s.url()).join(rules, day)
				e := events(8, "e", "x.a")
				costly := event("costly", "big")
				costly.Cost = 20
				m.want(ratelimit.Admitted, e...)
				m.want(ratelimit.Admitted, costly, event("other", "y"))
				m.wantPermit(ratelimit.Granted, 1, e[1], "", "first")
				m.wantPermit(ratelimit.Granted, 1, e[2], "", "one")
				m.wantPermit(ratelimit.Granted, 2, e[2], "one", "two")
				m.sent(e[3])
				m.sent(e[4])
				m.refund(e[5])
				before := s.everything(t)
				testkit.Check(t, s.FlushAll(t.Context()).Err())
				m.healedAgain()
				after := s.everything(t)
				for key := range maps.Keys(before) { // the time of a post and of what was sent is this process's estimate
					if value, found := after[key]; found && estimated(key) && near(before[key], value) {
						after[key] = before[key]
					}
				}
				for key := range after { // that a scope is wanted exact is marked only while there may be buckets
					if _, found := before[key]; !found && strings.Contains(key, " exact ") {
						delete(after, key)
					}
				}
				maps.DeleteFunc(before, func(key, _ string) bool { return strings.Contains(key, ":pace:") })
				if difference := cmp.Diff(before, after); difference != "" {
					t.Errorf("(-before +after):\n%s", difference)
				}
				m.want(ratelimit.Admitted, e[0], e[1])
				m.want(ratelimit.Duplicate, e[3], by("another", e[0]))
				if permit := m.begin(e[2], "one", "three"); permit.Status != ratelimit.Leased && permit.Last != "two" {
					t.Errorf("%+v, expected that the second post is known", permit)
				}
			})
		})
	}
}

// estimated reports whether a value has times that a worker knows by its own clock alone.
func estimated(key string) bool {
	return strings.HasPrefix(key, "{n}:sent ") || strings.HasPrefix(key, "{n}:inflight ") || strings.HasPrefix(key, "{n}:register ")
}

// near reports whether two values are alike but for times that differ by less than a few seconds.
func near(a, b string) bool {
	digits := func(r rune) bool { return r < '0' || r > '9' }
	x, y := strings.FieldsFunc(a, digits), strings.FieldsFunc(b, digits)
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		var m, n int64
		_, _ = fmt.Sscan(x[i], &m)
		_, _ = fmt.Sscan(y[i], &n)
		if m != n && (len(x[i]) != 16 || time.Duration(m-n).Abs()*time.Microsecond > 10*time.Second) {
			return false
		}
	}
	return true
}

// What is put back twice, by the same replica or by another one that knows the same events, is there once.
func TestPuttingBackChangesNothingThatIsThere(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]string{"exact": "100/30m", "buckets": "100/30m:1m"} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				f := newFleet(t, s.url())
				rules := testkit.Rules(limit, limit, "")
				a, b := f.join(rules, day), f.join(rules, day)
				e := events(10, "e", "a")
				a.want(ratelimit.Admitted, e...)
				b.want(ratelimit.Admitted, e[5:]...) // redelivered there
				a.sent(e[0])
				a.wantPermit(ratelimit.Granted, 1, e[6], "", "post")
				before := s.everything(t)
				for range 3 { // the mark alone is lost, and each puts back all that it knows
					testkit.Check(t, s.ZRem(t.Context(), "{n}:register", " healed").Err())
					a.healedAgain()
					b.healedAgain()
				}
				after := s.everything(t)
				for key := range before {
					if estimated(key) && near(before[key], after[key]) {
						after[key] = before[key]
					}
				}
				if difference := cmp.Diff(before, after); difference != "" {
					t.Errorf("(-before +after):\n%s", difference)
				}
			})
		})
	}
}

// A scope that is stored in the other form than this replica's limit asks for loses no slot.
func TestPuttingBackIntoTheOtherForm(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string][2]string{"exact first": {"20/30m", "20/30m:1m"}, "buckets first": {"20/30m:1m", "20/30m"}} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				f := newFleet(t, s.url())
				a := f.join(testkit.Rules(limits[0], limits[0], ""), day)
				b := f.join(testkit.Rules(limits[1], limits[1], ""), day)
				a.want(ratelimit.Admitted, events(6, "a", "x")...)
				b.want(ratelimit.Admitted, events(6, "b", "x")...)
				testkit.Check(t, s.FlushAll(t.Context()).Err())
				a.healedAgain()
				b.healedAgain()
				if n := a.fill("more", "x"); n > 8 {
					t.Errorf("%d more are admitted, expected 8 at most", n)
				}
			})
		})
	}
}

// A replica that comes late, after the others have waited for it in vain, puts back what it knows all the same.
func TestALateReplicaStillPutsBackWhatItRemembers(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]string{"exact": "40/30m", "buckets": "40/30m:1m"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := onProcess(t)
			f := newFleet(t, s.server.URL())
			rules := testkit.Rules(limit, limit, "")
			block := make(chan struct{})
			a := f.join(rules, day)
			slow := f.start("slow", rules, day, ratelimit.Healing{Peers: func() []string { <-block; return f.peers() }})
			f.seen("slow")
			block <- struct{}{} // begin and done of the first healing
			block <- struct{}{}
			slow.healedAgain()
			a.want(ratelimit.Admitted, events(5, "a", "x")...)
			slow.want(ratelimit.Admitted, events(10, "slow", "x")...)
			testkit.Check(t, s.FlushAll(t.Context()).Err())
			a.healedAgain()
			a.want(ratelimit.Admitted, events(3, "new", "x")...)
			if lines := a.log.FilterMessageSnippet("did not answer").All(); len(lines) != 1 || !slices.Equal(lines[0].ContextMap()["did_not_answer"].([]any), []any{"slow"}) {
				t.Errorf("lines %v, expected one that names the slow one", lines)
			}
			close(block)
			slow.healedAgain()
			if n := a.fill("more", "x"); n != 22 {
				t.Errorf("%d more are admitted, expected 22", n)
			}
		})
	}
}

// A replica that was given an event when it was delivered again puts its slots back at the time of the admission, and not where
// they have left the window already.
func TestARedeliveryIsPutBackAtTheTimeOfItsAdmission(t *testing.T) {
	t.Parallel()
	for name, global := range map[string]string{"exact": "100/30m", "buckets": "100/30m:1m"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := onProcess(t)
			f := newFleet(t, s.server.URL())
			rules := testkit.Rules(global, "1/2s", "")
			a, b := f.join(rules, day), f.join(rules, day)
			e := event("e", "a")
			a.want(ratelimit.Admitted, e)
			testkit.Eventually(t, "its slot is free", func() bool { return a.decided(event("next", "a")).Outcome == ratelimit.Admitted })
			b.want(ratelimit.Admitted, e)
			testkit.Check(t, s.ZRem(t.Context(), "{n}:register", " healed").Err())
			a.healedAgain()
			b.healedAgain()
			if slots := s.ZRange(t.Context(), "{n}:category:a", 0, -1).Val(); slices.Contains(slots, "a:e") {
				t.Errorf("the category has %q, expected that the slot of e is not taken again", slots)
			}
		})
	}
}

// So it does where the record of the admission has left the store by the time of the healing, and where a post has begun in between.
func TestARedeliveryIsNotPutBackAfterItsRecordHasEnded(t *testing.T) {
	t.Parallel()
	for name, posted := range map[string]bool{"no post": false, "a post has begun": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := onProcess(t)
			f := newFleet(t, s.server.URL())
			rules := testkit.Rules("100/2s", "1/2s", "")
			a, b := f.join(rules, 2*time.Second), f.join(rules, 2*time.Second)
			e := event("e", "a")
			a.want(ratelimit.Admitted, e)
			admitted := s.score(t, "{n}:global", "a:e")
			testkit.Eventually(t, "a second has passed", func() bool { return s.Time(t.Context()).Val().UnixMicro() > admitted+time.Second.Microseconds() })
			if posted {
				a.begin(e, "", "p1")
			}
			b.want(ratelimit.Admitted, e)
			testkit.Eventually(t, "its slot is free", func() bool { return a.decided(event("next", "a")).Outcome == ratelimit.Admitted })
			testkit.Check(t, errors.Join(s.Del(t.Context(), "{n}:inflight").Err(), s.ZRem(t.Context(), "{n}:register", " healed").Err()))
			a.healedAgain()
			b.healedAgain()
			if slots := s.ZRange(t.Context(), "{n}:category:a", 0, -1).Val(); slices.Contains(slots, "a:e") {
				t.Errorf("the category has %q, expected that the slot of e is not taken again", slots)
			}
		})
	}
}
