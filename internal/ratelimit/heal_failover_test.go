package ratelimit_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// load is what replicas admit under a steady load: each of them asks for an event every few milliseconds
// until it is stopped.
type load struct {
	stopping atomic.Bool
	running  sync.WaitGroup
	mu       sync.Mutex
	at       []time.Time     // of each admission, as its replica learned of it
	by       map[string]int  // by replica
	dead     map[string]bool // replicas that were killed
}

// kill ends a replica as kill -9 does. Later answers do not count.
func (l *load) kill(m *member) {
	l.mu.Lock()
	l.dead[m.name] = true
	l.mu.Unlock()
	m.kill()
}

// goes reports whether a replica goes on.
func (l *load) goes(m *member) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.dead[m.name] && !l.stopping.Load()
}

// putLoad starts a load on replicas. Events have a category each, so that the global limit alone counts.
func putLoad(t *testing.T, replicas ...*member) *load {
	l := &load{by: map[string]int{}, dead: map[string]bool{}}
	for _, m := range replicas {
		l.running.Go(func() {
			for n := 0; l.goes(m); n++ {
				request := event(fmt.Sprint(m.name, "-", n), m.name)
				decisions, err := m.Admit(t.Context(), []ratelimit.Request{request})
				for err != nil && l.goes(m) {
					time.Sleep(10 * time.Millisecond) // as the worker does, which holds its events and asks again
					decisions, err = m.Admit(t.Context(), []ratelimit.Request{request})
				}
				if err != nil || !l.goes(m) {
					return
				}
				if decisions[0].Verdict == ratelimit.Admitted {
					l.mu.Lock()
					l.at = append(l.at, time.Now())
					l.by[m.name]++
					l.mu.Unlock()
				}
				time.Sleep(5 * time.Millisecond) // the rate of its events
			}
		})
	}
	t.Cleanup(l.stop)
	return l
}

func (l *load) stop() {
	l.stopping.Store(true)
	l.running.Wait()
}

// admitted is how many events were.
func (l *load) admitted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.at)
}

// stall is the longest time without an admission.
func (l *load) stall() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var longest time.Duration
	for i := 1; i < len(l.at); i++ {
		longest = max(longest, l.at[i].Sub(l.at[i-1]))
	}
	return longest
}

// next is the first admission after a time.
func (l *load) next(after time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.at {
		if at.After(after) {
			return at
		}
	}
	return time.Time{}
}

// full waits until the limit refuses every event, and half a second longer to see that no forgotten slot is
// free.
func (l *load) full(t *testing.T, limit int) {
	t.Helper()
	kit.Eventually(t, fmt.Sprintf("%d are admitted", limit), func() bool { return l.admitted() >= limit })
	time.Sleep(500 * time.Millisecond) // so long more events are asked for
	l.stop()
}

// A store that comes back empty under load, again and again, lets nothing through twice.
func TestEmptyRestartsUnderLoadKeepTheLimit(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]string{"exact": "%d/30m", "buckets": "%d/30m:10s", "fixed": "%d/24h:fixed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, f := onFleet(t)
			const most = 600
			rules := kit.Rules(fmt.Sprintf(limit, most), fmt.Sprintf(limit, most), "")
			var replicas []*member
			for range 4 {
				replicas = append(replicas, f.join(rules, day))
			}
			l := putLoad(t, replicas...)
			for _, admitted := range []int{100, 250} {
				kit.Eventually(t, "some are admitted", func() bool { return l.admitted() >= admitted })
				s.server.Stop(t)
				s.server.Restart(t)
			}
			l.full(t, most)
			t.Logf("%d admitted, longest stall %s", l.admitted(), l.stall())
			if l.admitted() != most {
				t.Errorf("%d are admitted, expected %d", l.admitted(), most)
			}
		})
	}
}

// The replication link is cut before the primary is killed, so what was admitted since is on no other server.
func TestFailoverWithACutLinkForgetsNothing(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]string{"exact": "%d/30m", "buckets": "%d/30m:10s"} {
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, a replica dies too: %t", name, dies), func(t *testing.T) {
				if name != "exact" || dies {
					kit.Long(t)
				}
				t.Parallel()
				sentinels := redistest.StartSentinels(t, 2)
				f := newFleet(t, sentinels.URL())
				const most = 3000
				rules := kit.Rules(fmt.Sprintf(limit, most), fmt.Sprintf(limit, most), "")
				var replicas []*member
				for range 4 {
					replicas = append(replicas, f.join(rules, day))
				}
				l := putLoad(t, replicas...)
				t.Cleanup(func() {
					for _, m := range replicas {
						m.printLog()
					}
				})
				kit.Eventually(t, "some are admitted", func() bool { return l.admitted() >= 100 })
				sentinels.Front.CutReplication()
				cut, before, first := time.Now(), l.admitted(), l.count(replicas[0])
				kit.Eventually(t, "2.5 s of load, and 200 admissions", func() bool {
					return time.Since(cut) > 2500*time.Millisecond && l.admitted()-before >= 200
				})
				lost, excess := l.admitted()-before, 0
				if dies {
					l.kill(replicas[0])
					excess = l.count(replicas[0]) - first
				}
				sentinels.Primary.Stop(t)
				killed := time.Now()
				sentinels.Promoted(t)
				promoted := time.Now()
				l.full(t, most)
				t.Logf("%d admitted of %d, %d of them while the link was cut and %d by the one that died", l.admitted(), most, lost, excess)
				t.Logf("promoted after %s, the next admission %s later",
					promoted.Sub(killed), l.next(killed.Add(500*time.Millisecond)).Sub(promoted))
				if l.admitted() > most+excess {
					t.Errorf("%d are admitted, expected at most %d and %d", l.admitted(), most, excess)
				}
			})
		}
	}
}

// count is how many events a replica has admitted.
func (l *load) count(m *member) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.by[m.name]
}
