// Package decide holds the steps that every event passes before it may be posted: mutes, EVENT_MAX_AGE and
// the limiter. A worker runs them over each batch that arrives, and package post runs them again over one
// event whenever that has waited for its turn.
package decide

import (
	"context"
	"slices"
	"time"

	"notifier/internal/consume/result"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/steering"
)

// Job is one event that a worker holds, from its delivery until it is settled or handed back. One goroutine at a
// time uses it: the loop, then the poster of its turn. After Bury it is read only.
type Job struct {
	Result  result.Result     // the event, and its end as far as it is known
	Request ratelimit.Request // names it to the limiter

	// Admitted is the time at which the last admitting call began; zero before. A worker that is suspended during
	// the call cannot know when the script ran.
	Admitted time.Time
	Stale    bool // Redis no longer knows the admission, so the script decides anew

	// LastPost is the last post that this worker accounts for: its own, or one with an unknown result that it
	// will search for. Empty before the first.
	LastPost string
	NextPost string // a post that Redis may have recorded and that was not made; or empty

	Verdict Verdict
}

// RequestOf builds the request by which the limiter knows the event.
func RequestOf(r *result.Result) ratelimit.Request {
	return ratelimit.Request{
		ID: r.Event.ID, Source: r.Event.IDSource, Delivery: r.Delivery.Token,
		Category: r.Event.Category, Cost: r.Event.Cost,
	}
}

// Verdict is the next step of an event. The zero Verdict continues with the next Step.
type Verdict struct {
	Next  Next
	After time.Duration // Wait: until the event's next turn, at least
}

// Next says where an event goes.
type Next int

const (
	GoOn Next = iota
	Wait      // another turn later
	End       // to be settled
	Dead      // to be settled after its letter is stored
)

// Step takes jobs one step further, and sets the Verdict of each that stops there. It returns an error if
// Redis does not reply; then it can be repeated with the same jobs.
type Step func(ctx context.Context, jobs []*Job) error

// Open removes the jobs that have a Verdict. It changes jobs.
func Open(jobs []*Job) []*Job {
	return slices.DeleteFunc(jobs, func(job *Job) bool { return job.Verdict.Next != GoOn })
}

// Drop ends the job as dropped.
func (j *Job) Drop(reason string) {
	j.Result.Outcome, j.Result.Reason = outcome.Dropped, reason
	j.Verdict = Verdict{Next: End}
}

// mute drops the job as muted.
func (j *Job) mute(mute *steering.Order) {
	j.Drop(outcome.Muted)
	j.Result.Mute = mute
}

// Bury ends the job as dead.
func (j *Job) Bury(reason, detail string) {
	j.Result.Outcome, j.Result.Reason, j.Result.Detail = outcome.Dead, reason, detail
	j.Verdict = Verdict{Next: Dead}
}

// Wait gives the job another turn after d.
func (j *Job) Wait(d time.Duration) { j.Verdict = Verdict{Next: Wait, After: d} }

// mayHoldSlots reports whether the event may have been admitted, by this worker or by an earlier one.
func (j *Job) mayHoldSlots() bool {
	return j.Result.Delivery.Redelivered.Load() || !j.Admitted.IsZero()
}
