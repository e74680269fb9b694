package survival

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// form is a kind of limits. Each has replicas and a namespace of its own, all in the same Redis.
type form struct {
	name  string // of its namespace, too
	rules ratelimit.Rules
}

// forms are the two ways in which a scope is stored, with limits that nothing leaves while a scenario lasts:
// test/chaos judges windows that roll.
var forms = []form{
	{"exact", kit.Rules("2000/30m", "900/30m", "")},
	{"buckets", kit.Rules("2000/30m:1m", "900/30m:1m", "")},
}

const replicaCount = 4

// replicas are the replicas that share the limits of a form.
type replicas struct {
	form     form
	url      string // of Redis
	replicas []*replica
	pause    atomic.Int64 // between two batches of a replica, nanoseconds
	// admissions that nobody could put back before Redis was open again: so many may be too many
	missing int
	// of all replicas that were ever started, as heartbeats show them some seconds after a death, too
	names []string
}

func startReplicas(in *installation, form form, url string) *replicas {
	in.Helper()
	f := &replicas{form: form, url: url}
	f.pause.Store(int64(pauseSteady))
	for i := range replicaCount {
		f.names = append(f.names, fmt.Sprintf("r%d", i))
	}
	for i := range replicaCount {
		its := url
		if i == 0 && in.late != nil {
			its = "redis://" + in.late.Addr + "/0"
		}
		f.replicas = append(f.replicas, startReplica(in.T, f, i, its))
	}
	return f
}

// alive are the replicas that were not killed.
func (f *replicas) alive() []*replica {
	return slices.DeleteFunc(slices.Clone(f.replicas), func(r *replica) bool {
		select {
		case <-r.ended:
			return true
		default:
			return false
		}
	})
}

// admissions are those of all replicas, the killed ones included.
func (f *replicas) admissions() (all []admission) {
	for _, r := range f.replicas {
		r.mu.Lock()
		all = append(all, r.admissions...)
		r.mu.Unlock()
	}
	return all
}

// admitted is how many events were admitted.
func (f *replicas) admitted() (n int) {
	for _, r := range f.replicas {
		r.mu.Lock()
		n += len(r.admissions)
		r.mu.Unlock()
	}
	return n
}

// mark remembers that from now on there is a Redis to ask.
func (f *replicas) mark() {
	now := time.Now()
	for _, r := range f.replicas {
		r.mu.Lock()
		r.mark, r.resumed = now, 0
		r.mu.Unlock()
	}
}

// resumed reports whether each living replica was answered after the mark, and how long that took the last of
// them.
func (f *replicas) resumed() (all bool, last time.Duration) {
	all = true
	for _, r := range f.alive() {
		r.mu.Lock()
		all, last = all && r.resumed > 0, max(last, r.resumed)
		r.mu.Unlock()
	}
	return all, last
}

// usedUp reports whether each living replica was refused everything in its last batches.
func (f *replicas) usedUp() bool {
	return !slices.ContainsFunc(f.alive(), func(r *replica) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.refused < 20
	})
}

// silence is the longest time for which a living replica had no answer.
func (f *replicas) silence() (longest time.Duration) {
	for _, r := range f.alive() {
		r.mu.Lock()
		longest = max(longest, r.silence)
		r.mu.Unlock()
	}
	return longest
}

// lastErrors are what the living replicas have met last, for a test that fails.
func (f *replicas) lastErrors() (all []error) {
	for _, r := range f.alive() {
		r.mu.Lock()
		all = append(all, r.lastError)
		r.mu.Unlock()
	}
	return all
}

// forgotten is how many ids of the admissions of living replicas are unknown: another message with such an id
// is no duplicate.
func (f *replicas) forgotten(t *testing.T) (n int) {
	t.Helper()
	limiter, err := ratelimit.New(kit.OpenRedis(t, f.url), f.form.name, f.form.rules, time.Hour)
	kit.Check(t, err)
	for _, r := range f.alive() {
		r.kill()
		<-r.ended
		for batch := range slices.Chunk(r.admissions, 500) {
			var requests []ratelimit.Request
			for _, a := range batch {
				again := a.request
				again.Delivery = "another " + again.Delivery
				requests = append(requests, again)
			}
			var decisions []ratelimit.Decision
			kit.EventuallyNil(t, func() (err error) {
				decisions, err = limiter.Admit(t.Context(), requests)
				return err
			})
			for _, decision := range decisions {
				if decision.Verdict != ratelimit.Duplicate {
					n++
				}
			}
		}
	}
	return n
}
