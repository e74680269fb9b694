package decide

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/result"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/steering"
)

// Limiter is the part of package ratelimit that decides, and takes decisions back.
type Limiter interface {
	Admit(ctx context.Context, batch []ratelimit.Request) ([]ratelimit.Decision, error)
	Refund(ctx context.Context, request ratelimit.Request, known string) (bool, error)
	Forfeit(ctx context.Context, request ratelimit.Request, known string) (bool, error)
	InFlight(ctx context.Context, request ratelimit.Request) (record ratelimit.InFlight, found bool, err error)
	WasSent(ctx context.Context, request ratelimit.Request) (bool, error)
	StandsStill() error
	Evicts() error
}

// Mutes holds the categories that operators have muted; see package steering.
type Mutes interface {
	Load(ctx context.Context) error
	Muted(category string) (mute *steering.Order, muted bool)
}

// Decider has the steps. It is safe for concurrent use.
type Decider struct {
	Limiter Limiter
	Mutes   Mutes         // nil mutes nothing
	MaxAge  time.Duration // older events are dropped; zero keeps all
	Tracker *availability.Tracker
}

// Fresh bounds the age of an admission, or of a permit, when a post begins: the slots of an older admission
// may have left a short window, and the lease of an older permit may end before the post.
const Fresh = time.Second

// Mute drops events of muted categories, and gives back the slots of those that were admitted. An event goes
// on if a post of it may be under way elsewhere. If the result of a post is in, and the message may be in
// Slack all the same, the event is dropped and keeps its slots: after a search of the channel, if that is
// possible, another post could only add an unwanted copy.
//
// A new delivery is dropped without a call to Redis: otherwise Redis would pay for each storm that is muted.
// So if a consumer was deleted, its successor delivers admitted events as new, and their slots stay taken
// until they leave the window.
func (d *Decider) Mute(ctx context.Context, jobs []*Job) error {
	if d.Mutes == nil {
		return nil
	}
	var charged []*Job // perhaps
	for _, job := range jobs {
		mute, muted := d.Mutes.Muted(job.Result.Event.Category)
		switch {
		case !muted || job.Verdict.Next != GoOn:
		case job.mayHoldSlots():
			charged = append(charged, job)
		default:
			job.mute(mute)
		}
	}
	for chunk := range slices.Chunk(charged, maxReleases) {
		if err := d.muteCharged(ctx, chunk); err != nil {
			return err
		}
	}
	return nil
}

// muteCharged drops jobs of muted categories that may hold slots.
func (d *Decider) muteCharged(ctx context.Context, jobs []*Job) error {
	errs := make([]error, len(jobs))
	var calls sync.WaitGroup
	for i, job := range jobs {
		calls.Go(func() {
			released, err := d.release(ctx, job)
			mute, muted := d.Mutes.Muted(job.Result.Event.Category)
			if released && muted {
				job.mute(mute)
			}
			errs[i] = err
		})
	}
	calls.Wait()
	return cmp.Or(errs...)
}

// maxReleases bounds the concurrent calls of Mute. One after the other, a batch of redelivered events would
// take minutes at a distant Redis.
const maxReleases = 16

// Age drops events older than MaxAge. An event that was admitted here leaves the events in flight first, and
// gives its slots back unless it may be in Slack. As with a mute, it goes on if a post of it may be under
// way elsewhere. A redelivered event may hold slots of an earlier worker, so Admit runs first; Age drops and
// refunds it at its turn.
func (d *Decider) Age(ctx context.Context, jobs []*Job) error {
	if d.MaxAge <= 0 {
		return nil
	}
	now := time.Now()
	for _, job := range jobs {
		age := now.Sub(job.Result.Event.Time)
		redelivered := job.Result.Delivery.Redelivered.Load() && job.Admitted.IsZero()
		if age <= d.MaxAge || redelivered || job.Verdict.Next != GoOn {
			continue
		}
		if !job.Admitted.IsZero() {
			released, err := d.release(ctx, job)
			if err != nil {
				return err
			}
			if !released {
				continue
			}
		}
		job.Drop(outcome.Expired)
		job.Result.Age, job.Result.MaxAge = age, d.MaxAge
	}
	return nil
}

// buffers of Admit are reused: in a storm they would be much of the garbage.
type buffers struct {
	requests []ratelimit.Request
	jobs     []*Job
}

var admitBuffers = sync.Pool{New: func() any { return &buffers{} }}

func (b *buffers) forget() {
	clear(b.requests)
	clear(b.jobs)
	b.requests, b.jobs = b.requests[:0], b.jobs[:0]
	admitBuffers.Put(b)
}

// Admit has the script decide on events without a fresh admission, in one call. An event that is in flight is
// admitted again without a charge. An event that has left every window since is decided anew.
func (d *Decider) Admit(ctx context.Context, jobs []*Job) error {
	asked := time.Now()
	b := admitBuffers.Get().(*buffers)
	defer b.forget()
	decidesNew := false
	for _, job := range jobs {
		if !job.Stale && asked.Sub(job.Admitted) <= Fresh {
			continue
		}
		decidesNew = decidesNew || job.Admitted.IsZero()
		b.requests = append(b.requests, job.Request)
		b.jobs = append(b.jobs, job)
	}
	if len(b.requests) == 0 {
		return nil
	}
	decisions, err := d.Limiter.Admit(ctx, b.requests)
	if err != nil {
		return err
	}
	if decidesNew { // a full Redis still replies about events in flight
		d.Tracker.Recovered(availability.Redis)
	}
	d.CheckStore()
	now := time.Now()
	for i, job := range b.jobs {
		if decisions[i].Verdict == ratelimit.Admitted {
			job.Admitted, job.Result.Decided, job.Stale = asked, asked, false
			continue
		}
		job.refuse(decisions[i], now)
	}
	return nil
}

// refuse drops the job for a decision other than Admitted. Its line says ambiguous if a post under an earlier
// admission may be in Slack.
func (j *Job) refuse(decision ratelimit.Decision, now time.Time) {
	known := j.Result
	isOwn := decision.LastPost == j.LastPost || decision.LastPost == j.NextPost
	j.Result = result.Result{
		Event: known.Event, Delivery: known.Delivery, Decided: now,
		Attempts: max(known.Attempts, decision.Posts), LastPost: decision.LastPost,
		Ambiguous: known.Ambiguous || decision.LastPost != "" && !isOwn,
		Tier:      decision.Tier, RetryAfter: decision.RetryAfter, Reserved: decision.Reserved,
		AtLeast: decision.AtLeast && !decision.Never, Never: decision.Never,
	}
	j.Drop(decision.Verdict.Reason())
}

// release gives a job's slots back, or ends it in flight with its slots if it may be in Slack. It returns
// false if the job has to go on, because a post of it may have begun elsewhere, or because it was sent and is
// a duplicate. An error after the refund may concern the record of this event alone, so Admit decides then.
func (d *Decider) release(ctx context.Context, job *Job) (bool, error) {
	giveUp := d.Refund
	if job.Result.Ambiguous {
		giveUp = d.Forfeit
	}
	released, err := giveUp(ctx, job)
	if err != nil || released {
		return released, err
	}
	record, found, err := d.Limiter.InFlight(ctx, job.Request)
	if err != nil {
		return false, nil
	}
	if found { // another event with this id may hold the slots
		return record.Delivery != job.Request.Delivery, nil
	}
	sent, err := d.Limiter.WasSent(ctx, job.Request)
	return err == nil && !sent, nil
}

// Refund gives back the slots of an event in flight. It returns false, and changes nothing, if a post of the
// event may have begun or if it is not in flight.
func (d *Decider) Refund(ctx context.Context, job *Job) (bool, error) {
	return d.giveUp(ctx, job, d.Limiter.Refund)
}

// Forfeit ends an event in flight and leaves its slots taken. Its letter can then be replayed.
func (d *Decider) Forfeit(ctx context.Context, job *Job) (bool, error) {
	return d.giveUp(ctx, job, d.Limiter.Forfeit)
}

type giveUp func(ctx context.Context, request ratelimit.Request, known string) (bool, error)

// giveUp also tries the name of a post that was permitted and not made because the reply was lost.
func (d *Decider) giveUp(ctx context.Context, job *Job, call giveUp) (done bool, err error) {
	done, err = call(ctx, job.Request, job.LastPost)
	if err == nil && !done && job.NextPost != "" {
		done, err = call(ctx, job.Request, job.NextPost)
	}
	if err == nil {
		d.Tracker.Recovered(availability.Redis)
	}
	return done, err
}

// CheckStore reports a clock of Redis that was set back, and a Redis that evicts admissions. It makes no
// call.
func (d *Decider) CheckStore() {
	for dependency, err := range map[availability.Dependency]error{
		availability.Clock: d.Limiter.StandsStill(), availability.Eviction: d.Limiter.Evicts(),
	} {
		if err == nil {
			d.Tracker.Recovered(dependency)
		} else {
			d.Tracker.Lost(dependency, err)
		}
	}
}
