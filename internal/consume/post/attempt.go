package post

import (
	"context"
	"slices"
	"time"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/crash"
	"notifier/internal/consume/decide"
	"notifier/internal/consume/post/lanes"
	"notifier/internal/consume/result"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
	"notifier/internal/wait"
)

// Times of the lease of a post. Tests shorten them.
var (
	leaseMargin  = 2 * time.Second // beyond SLACK_TIMEOUT, to record the post
	leaseRecheck = time.Second     // between two looks at an event that another worker may be posting
)

// attempt is one turn of an event, which makes at most one post.
type attempt struct {
	s    *Sender
	p    *posting
	job  *decide.Job // of p
	turn *lanes.Turn[*posting]
	end  lanes.Result // for turn.Finish

	finishCtx context.Context // bounds a post, and its records
}

// takeTurn takes an event through its turn, and carries out the Verdict.
func (s *Sender) takeTurn(startCtx, finishCtx context.Context, turn *lanes.Turn[*posting]) {
	a := &attempt{s: s, p: turn.Item, job: &turn.Item.job, turn: turn, finishCtx: finishCtx}
	a.job.Verdict = decide.Verdict{}
	if err := a.run(startCtx); err != nil {
		a.redisFailed(startCtx, err)
	}
	switch verdict := a.job.Verdict; verdict.Next {
	case decide.Wait:
		s.failing.note(a.p, verdict.After)
		a.end.After = verdict.After
	case decide.End:
		s.failing.forget(a.p)
		// After an error the event stays in flight, and is redelivered.
		_ = s.settings.Settle(finishCtx, []*result.Result{&a.job.Result})
		a.end.Done = true
	case decide.Dead: // the letters settle it
		s.failing.forget(a.p)
		a.end.Done = true
	default:
		panic("post: a turn ended without a verdict")
	}
	proof := turn.Finish(a.end)
	if proof.Channel {
		s.settings.Tracker.ChannelRecovered(laneOf(a.p.channel))
	}
	if proof.Workspace {
		s.foreign.forget()
		s.settings.Tracker.Recovered(availability.Slack)
		s.settings.Tracker.Recovered(availability.Credentials)
	}
}

// run takes the event through the steps of a turn until one of them sets its Verdict. It returns an error if
// Redis does not reply.
func (a *attempt) run(ctx context.Context) error {
	d := a.s.settings.Decider
	jobs := []*decide.Job{a.job}
	for _, step := range []decide.Step{a.find, d.Mute, d.Age, d.Admit, a.endIfClosed, a.permit, a.post} {
		if err := step(ctx, jobs); err != nil {
			return err
		}
		if a.job.Verdict.Next != decide.GoOn {
			return nil
		}
	}
	return nil
}

// After maxRedisFailures failed turns in a row an event loses its place in its lane.
const maxRedisFailures = 20

// redisFailed gives the event another turn in its place, and holds all others meanwhile: they would fail in
// the same way. After maxRedisFailures another event of the lane goes first, in case Redis fails for this one
// alone.
func (a *attempt) redisFailed(ctx context.Context, err error) {
	pause := wait.Jitter(availability.RetryPause)
	if ctx.Err() == nil {
		a.s.settings.Tracker.Lost(availability.Redis, err)
		a.s.lanes.Hold(pause)
	}
	a.job.Wait(0)
	a.p.redisFailures++
	if a.p.redisFailures > maxRedisFailures {
		a.job.Wait(pause + availability.RetryPause/2) // longer than the hold
	}
}

// endIfClosed ends the event if its channel refuses every message. It does so without a permit, because a
// permit counts in the pace. If Redis has a post of the event that this worker does not know, it does
// nothing: the next step, permit, finds out whether that post may be in the channel.
func (a *attempt) endIfClosed(ctx context.Context, _ []*decide.Job) error {
	if !a.s.channels.closed(a.p.channel, a.replayed()) {
		return nil
	}
	record, found, err := a.s.settings.Limiter.InFlight(ctx, a.job.Request)
	if err != nil {
		return err
	}
	known := slices.Contains([]string{"", a.job.LastPost, a.job.NextPost}, record.LastName)
	if found && record.Delivery == a.job.Request.Delivery && known {
		a.endByChannel()
	}
	return nil
}

// replayed reports whether the event is a dead letter that was replayed.
func (a *attempt) replayed() bool {
	return len(a.job.Result.Delivery.Message.Header[outcome.HeaderEventID]) > 0
}

// permit gets a permit for the post. The script records the post before it is made, and gives it a place in
// the channel's pace.
func (a *attempt) permit(ctx context.Context, _ []*decide.Job) error {
	if a.job.NextPost == "" {
		a.job.NextPost = a.s.nextName()
	}
	asked := time.Now()
	permit, err := a.s.settings.Limiter.Begin(ctx, ratelimit.Post{
		Request: a.job.Request, Channel: a.p.channel, Known: a.job.LastPost, Name: a.job.NextPost,
		Longest: a.s.settings.PostTimeout + leaseMargin, Worker: a.s.settings.WorkerName,
		Since: a.job.Result.Event.Published,
	})
	if err != nil {
		return err // the post may be recorded, so the next call has the same name
	}
	a.s.settings.Tracker.Recovered(availability.Redis)
	a.p.redisFailures = 0
	if permit.Status != ratelimit.Granted {
		a.notPermitted(permit)
		return nil
	}
	a.job.LastPost, a.job.NextPost = a.job.NextPost, "" // from now on this worker accounts for the post
	if time.Since(asked) > decide.Fresh {
		// The process was suspended, so the lease may be over. The next post has another name.
		a.job.Wait(0)
		return nil
	}
	a.job.Result.Attempts = max(a.job.Result.Attempts, permit.Posts-1) // of other workers too
	return nil
}

// shortestPause is the shortest wait that is reported as a pause. A shorter one is the wait for another
// replica's probe (PROBE_POLL in begin.lua), or the end of a pause.
const shortestPause = time.Second

// notPermitted gives the event another turn, for the reason that there is no permit.
func (a *attempt) notPermitted(permit ratelimit.Permit) {
	a.job.Wait(0)
	switch permit.Status {
	case ratelimit.WorkspacePaused:
		a.end.Signal, a.end.AtLeast = lanes.WorkspacePaused, permit.Wait
		if permit.Wait >= shortestPause {
			a.s.settings.Tracker.Lost(availability.Slack, pauseLeft(permit.Wait))
		}
	case ratelimit.ChannelPaused:
		a.end.Signal, a.end.AtLeast = lanes.ChannelPaused, permit.Wait
		if permit.Wait >= shortestPause {
			a.s.settings.Tracker.ChannelLost(laneOf(a.p.channel), pauseLeft(permit.Wait))
		}
	case ratelimit.Paced:
		a.end.Pace = permit.Wait
	case ratelimit.Leased:
		a.job.Wait(min(permit.Wait, leaseRecheck))
	case ratelimit.LastPostUnknown: // of a worker that crashed, or lost the event to this one
		if permit.Last == a.job.NextPost { // a reply was lost, and the post was not made while its lease lasted
			a.job.LastPost, a.job.NextPost = permit.Last, ""
			return
		}
		a.p.mustSearch, a.job.LastPost, a.job.Result.Ambiguous = true, permit.Last, true
		a.job.Result.Attempts = max(a.job.Result.Attempts, permit.Posts)
	default: // NotInFlight: another worker settled it, or its slots have left every window
		a.job.Stale = true
	}
}

// post makes the post.
func (a *attempt) post(ctx context.Context, _ []*decide.Job) error {
	r := &a.job.Result
	r.Attempts++
	r.Posted = time.Now()
	receipt, err := a.s.settings.Slack.Post(a.finishCtx, r.Event)
	if err == nil {
		crash.At(crash.AfterPost)
		a.accepted(receipt)
		return nil
	}
	failure := slackout.AsError(err)
	r.Ambiguous = r.Ambiguous || failure.Class == slackout.Ambiguous
	a.p.mustSearch, a.p.searches = r.Ambiguous, 0
	a.failed(ctx, failure)
	return nil
}
