package consume

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.uber.org/zap"

	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
)

// admitted is an event that the script has let through and that is on its way to Slack.
type admitted struct {
	event    event.Event
	delivery *delivery
	request  ratelimit.Request
	asked    time.Time // when the script last answered that it may be posted
}

// posting is an admitted event and what is known so far of how it ends.
type posting struct {
	admitted
	settled Settled
	name    string // of the next post: kept while it is not known whether Redis has recorded it
	last    string // the name of its last post whose end is known, or that was looked up
	unsure  bool   // a post of it may have arrived, and the channel has not been searched since
	lookups int    // how often Slack did not let us search, since the last post
}

// Bounds of the way to a post.
const (
	readmitAfter = time.Second     // how old the script's answer may be when the post begins
	leaseMargin  = 2 * time.Second // beyond SLACK_TIMEOUT, for the record of a post
	leaseRecheck = time.Second     // between two looks at an event that another replica may be posting
)

// errUnsettled ends an event's way without an outcome: the worker stops, and the event is left for redelivery.
var errUnsettled = errors.New("left for redelivery")

// errPaused is Slack's answer to another replica.
var errPaused = errors.New("another replica was asked by Slack to pause")

// finish ends an event's way. It returns an error only when ctx ends.
type finish func(ctx context.Context, p *posting) error

// result is what an attempt, or a step of it, leads to.
type result struct {
	finish finish        // how the event ends; nil: not yet
	wait   time.Duration // without a finish: when to make the next attempt
}

func endWith(f finish) *result              { return &result{finish: f} }
func tryAgainAfter(d time.Duration) *result { return &result{wait: d} }

// postAll posts admitted events until there are no more. No post begins after startCtx has ended; one that is under way may
// go on until finishCtx ends, because a post that is cut off may have reached Slack, and would be made again.
func (w *Worker) postAll(startCtx, finishCtx context.Context) {
	for a := range w.posts {
		settled, err := w.deliver(startCtx, finishCtx, a)
		if err != nil {
			continue // it stays in flight, and is returned when Run ends
		}
		w.settle([]Settled{settled})
	}
}

// deliver takes one admitted event to its outcome, however long Slack or Redis are unavailable. It fails only when one of
// the contexts ends; see postAll for them.
func (w *Worker) deliver(startCtx, finishCtx context.Context, a admitted) (Settled, error) {
	p := &posting{admitted: a, settled: Settled{
		Event: a.event, Channel: w.poster.Channel(a.event), Decided: a.asked, delivery: a.delivery,
	}}
	for startCtx.Err() == nil {
		r := w.attempt(startCtx, finishCtx, p)
		if r.finish != nil {
			err := r.finish(finishCtx, p) // it sets the outcome
			return p.settled, err
		}
		sleep(startCtx, r.wait)
	}
	return p.settled, errUnsettled
}

// attempt makes at most one post. It checks first that the event may still be posted, that it is not in Slack already, and
// that neither a pause nor another replica prevents the post. It waits for nothing but the gate and the answers of Redis and
// Slack.
func (w *Worker) attempt(startCtx, finishCtx context.Context, p *posting) result {
	pass, err := w.gate.enter(startCtx)
	if err != nil {
		return result{}
	}
	defer pass.release()

	if r := w.readmit(startCtx, p); r != nil {
		return *r
	}
	if r := w.lookUp(startCtx, p, pass); r != nil {
		return *r
	}
	probe, r := w.begin(startCtx, p, pass)
	if r != nil {
		return *r
	}
	channel := p.settled.Channel // as the settings name it; Slack's answer has its ID
	receipt, failure := w.post(finishCtx, p, probe)
	switch {
	case failure == nil:
		w.slackAnswered(pass)
		w.refused.accepted(channel)
		p.inSlack(receipt)
		return result{finish: w.recordSent}
	case failure.Class == slackout.Rejected:
		w.slackAnswered(pass)
		if failure.ChannelRefused {
			w.refused.rejected(channel, failure.Code)
		}
		p.settled.Detail = failure.Code
		return result{finish: w.recordRejected}
	case startCtx.Err() != nil: // no further attempt here, but the other replicas need to know
		w.sharePause(finishCtx, failure, failure.RetryAfter)
	default:
		w.slackFailed(finishCtx, pass, failure)
	}
	return result{}
}

// readmit asks the script again about an event that has waited. While its admission counts, the answer is yes and costs
// nothing; when it has outlived every window, the event is decided again.
func (w *Worker) readmit(ctx context.Context, p *posting) *result {
	if time.Since(p.asked) <= readmitAfter {
		return nil
	}
	decisions, err := w.limiter.Admit(ctx, []ratelimit.Request{p.request})
	if err != nil {
		return w.redisFailed(ctx, err)
	}
	w.redisDecided()
	p.asked = time.Now()
	if decisions[0].Outcome == ratelimit.Admitted {
		return nil
	}
	dropped := refused(p.event, p.delivery, decisions[0])
	dropped.Attempts, dropped.Ambiguous, dropped.Decided = p.settled.Attempts, p.settled.Ambiguous, p.asked
	p.settled = dropped
	return endWith(recordNothing)
}

// begin asks Redis for a permit, which records the post before it is made. probe: it is the first post of all replicas after
// a pause.
func (w *Worker) begin(ctx context.Context, p *posting, pass *pass) (probe bool, r *result) {
	if p.name == "" {
		p.name = w.name + "-" + strconv.FormatUint(w.begun.Add(1), 36)
	}
	asked := time.Now()
	permit, err := w.limiter.Begin(ctx, p.request, p.last, p.name, w.settings.PostTimeout+leaseMargin)
	if err != nil {
		return false, w.redisFailed(ctx, err) // it may be recorded: the next call has the same name
	}
	w.availability.recovered(redisScripts)
	switch permit.Status {
	case ratelimit.Granted, ratelimit.GrantedAsProbe:
		p.last, p.name = p.name, ""
	case ratelimit.Paused:
		pass.closeFor(permit.Wait)
		if permit.Wait >= time.Second { // less is another replica's probe
			w.availability.lost(slackPosts, errPaused)
		}
		return false, tryAgainAfter(0)
	case ratelimit.Leased:
		return false, tryAgainAfter(min(permit.Wait, leaseRecheck))
	case ratelimit.OutcomeUnknown: // a worker that has crashed, or lost the event to this one, has begun a post
		p.unsure, p.last, p.settled.Ambiguous = true, permit.Last, true
		p.settled.Attempts = max(p.settled.Attempts, permit.Posts)
		return false, tryAgainAfter(0)
	default: // NotInFlight: settled by another replica, or older than its window
		p.asked = time.Time{}
		return false, tryAgainAfter(0)
	}
	if time.Since(asked) > readmitAfter { // this process stood still: the answer is out of date
		return false, tryAgainAfter(0)
	}
	probe = permit.Status == ratelimit.GrantedAsProbe
	if code, closed := w.refused.closed(p.settled.Channel); closed && !probe {
		p.settled.Detail = code
		return false, endWith(w.recordRejected)
	}
	return probe, nil
}

// post makes the post, and notes in p what a failure leaves unknown.
func (w *Worker) post(ctx context.Context, p *posting, probe bool) (slackout.Receipt, *slackout.Error) {
	p.settled.Attempts++
	p.settled.Posted = time.Now()
	receipt, err := w.poster.Post(ctx, p.event)
	failure := postFailure(err)
	if probe && (failure == nil || failure.Class != slackout.RetryAfter) {
		w.liftPause(ctx)
	}
	if failure == nil {
		crash(afterPost)
		return receipt, nil
	}
	if failure.Class == slackout.Ambiguous {
		p.settled.Ambiguous = true
	}
	p.unsure, p.lookups = p.settled.Ambiguous, 0 // before the next post it may be possible to search the channel
	return receipt, failure
}

// postFailure is the error of a post as what it always is.
func postFailure(err error) *slackout.Error {
	var failure *slackout.Error
	if err != nil && !errors.As(err, &failure) {
		failure = &slackout.Error{Class: slackout.Ambiguous, Code: "unknown"}
	}
	return failure
}

// inSlack takes over what Slack reports of the message.
func (p *posting) inSlack(receipt slackout.Receipt) {
	p.settled.Latency = time.Since(p.event.Published)
	if receipt.Channel != "" {
		p.settled.Channel = receipt.Channel
	}
	p.settled.SlackTS = receipt.TS
}

// slackAnswered notes that Slack answers posts.
func (w *Worker) slackAnswered(pass *pass) {
	if pass.succeeded() {
		w.availability.recovered(slackPosts)
		w.availability.recovered(slackCredentials)
	}
}

// slackFailed closes the gate for as long as Slack asks or the backoff gives, and shares a pause that Slack has asked for.
func (w *Worker) slackFailed(ctx context.Context, pass *pass, failure *slackout.Error) {
	what := slackPosts
	if failure.Class == slackout.Credentials {
		what = slackCredentials
	}
	wait := pass.failed(failure.RetryAfter)
	w.availability.lost(what, failure)
	w.sharePause(ctx, failure, wait)
}

// sharePause makes the other replicas pause too, if Slack has asked for it.
func (w *Worker) sharePause(ctx context.Context, failure *slackout.Error, wait time.Duration) {
	if failure.Class != slackout.RetryAfter || wait <= 0 {
		return
	}
	if err := w.pause.Extend(ctx, wait); err != nil {
		w.log.Warn("cannot share Slack's pause with the other replicas", zap.Error(err))
	}
}

// liftPause ends the pause of all replicas after a probe that went well. If it fails, the next probe does it.
func (w *Worker) liftPause(ctx context.Context) {
	if err := w.pause.Lift(ctx); err != nil {
		w.log.Warn("cannot share the end of Slack's pause with the other replicas", zap.Error(err))
	}
}

// redisFailed notes that Redis has not answered, and has the attempt made again.
func (w *Worker) redisFailed(ctx context.Context, err error) *result {
	if ctx.Err() == nil {
		w.availability.lost(redisScripts, err)
	}
	return tryAgainAfter(jitter(retryPause))
}

// recordSent records that the event is in Slack. It fails only when this worker has to end. Even then the event is settled:
// returned to the server it would be posted again. What is lost is the record by which a second event with its id would be
// a duplicate for long.
func (w *Worker) recordSent(ctx context.Context, p *posting) error {
	p.settled.Outcome = outcome.Sent
	_ = w.hold(ctx, redisScripts, func() error { return w.limiter.Sent(ctx, p.request) })
	crash(afterRecord)
	return nil
}

// recordRejected puts an event that Slack has refused for good into the dead-letter stream and refunds it. If a post of it
// may have reached Slack, it may be in the channel, and keeps its slot.
//
// The refund comes last: until then the event is in flight with a post that has begun, and a worker that takes it over after
// a crash logs ambiguous. After it nothing is left by which that worker could know it, and it decides again.
func (w *Worker) recordRejected(ctx context.Context, p *posting) error {
	p.settled.Outcome, p.settled.Reason = outcome.Dead, outcome.SlackRejected
	if err := w.publishDeadLetters(ctx, []Settled{p.settled}); err != nil {
		return errUnsettled
	}
	if p.settled.Ambiguous {
		return nil
	}
	err := w.hold(ctx, redisScripts, func() error {
		_, err := w.limiter.Refund(ctx, p.request)
		return err
	})
	if err != nil {
		return errUnsettled
	}
	return nil
}

// recordNothing ends an event that was dropped on its way: the script has stored nothing of it.
func recordNothing(context.Context, *posting) error { return nil }
