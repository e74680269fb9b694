package survival

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// form is a kind of limits. Each form has its own workers and namespace, all in the same Redis.
type form struct {
	name  string // also its namespace
	rules ratelimit.Rules
}

// forms has one form for logs and one for buckets. No slot leaves their windows during a scenario; test/chaos
// judges windows that roll.
var forms = []form{
	{"exact", kit.Rules("2000/30m", "900/30m", "")},
	{"buckets", kit.Rules("2000/30m:1m", "900/30m:1m", "")},
}

const replicaCount = 4

// replicas holds the workers that share the limits of a form.
type replicas struct {
	form     form
	url      string // Redis
	replicas []*replica
	pause    atomic.Int64 // between two batches of a worker, in nanoseconds
	// missing counts admissions that no worker could restore before the store opened. The excess may reach
	// it.
	missing int
}

func startReplicas(in *installation, form form, url string) *replicas {
	in.Helper()
	f := &replicas{form: form, url: url}
	f.pause.Store(int64(pauseSteady))
	for i := range replicaCount {
		its := url
		if i == 0 && in.late != nil {
			its = "redis://" + in.late.Addr + "/0"
		}
		f.replicas = append(f.replicas, startReplica(in.T, f, i, its))
	}
	return f
}

// alive returns the workers that were not killed.
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

// admissions returns the admissions of all workers, including killed ones.
func (f *replicas) admissions() (all []admission) {
	for _, r := range f.replicas {
		r.mu.Lock()
		all = append(all, r.admissions...)
		r.mu.Unlock()
	}
	return all
}

// admitted returns the number of admissions.
func (f *replicas) admitted() (n int) {
	for _, r := range f.replicas {
		r.mu.Lock()
		n += len(r.admissions)
		r.mu.Unlock()
	}
	return n
}

// mark sets the time from which Redis is reachable.
func (f *replicas) mark() {
	now := time.Now()
	for _, r := range f.replicas {
		r.mu.Lock()
		r.mark, r.resumed = now, 0
		r.mu.Unlock()
	}
}

// resumed reports whether each living worker has had a reply since the mark, and the time until the last of
// them had one.
func (f *replicas) resumed() (all bool, last time.Duration) {
	all = true
	for _, r := range f.alive() {
		r.mu.Lock()
		all, last = all && r.resumed > 0, max(last, r.resumed)
		r.mu.Unlock()
	}
	return all, last
}

// usedUp reports whether each living worker had no admission in its last 20 batches.
func (f *replicas) usedUp() bool {
	return !slices.ContainsFunc(f.alive(), func(r *replica) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.refused < 20
	})
}

// silence returns the longest time that a living worker waited for a reply.
func (f *replicas) silence() (longest time.Duration) {
	for _, r := range f.alive() {
		r.mu.Lock()
		longest = max(longest, r.silence)
		r.mu.Unlock()
	}
	return longest
}

// lastErrors returns the last error of each living worker, for the message of a failing test.
func (f *replicas) lastErrors() (all []error) {
	for _, r := range f.alive() {
		r.mu.Lock()
		all = append(all, r.lastError)
		r.mu.Unlock()
	}
	return all
}

// forgotten stops the living workers and counts the ids of their admissions that the store no longer knows:
// another message with such an id is not a duplicate.
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
