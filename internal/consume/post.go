package consume

import (
	"context"
	"errors"
	"strconv"
	"time"

	"notifier/internal/event"
	"notifier/internal/lanes"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
	"notifier/internal/wait"
)

// admitted is an event that the script has let through and that is on its way to Slack.
type admitted struct {
	event    event.Event
	delivery *delivery
	request  ratelimit.Request
	asked    time.Time // when the script last answered that it may be posted

}

// requestFor is the question whether an event may be sent.
func requestFor(ev event.Event, d *delivery) ratelimit.Request {
	return ratelimit.Request{
		ID: ev.ID, Source: ev.IDSource, Delivery: d.token, Category: ev.Category, Cost: ev.Cost,
	}
}

// posting is an admitted event and what is known so far of how it ends.
type posting struct {
	admitted
	settled  Settled
	channel  string // as the settings name it; Slack's answer has its ID
	name     string // of the next post: kept while it is not known whether Redis has recorded it
	last     string // the name of its last post whose end is known, or that was looked up
	unsure   bool   // a post of it may have arrived, and the channel has not been searched since
	lookups  int    // how often Slack did not let us search, since the last post
	patience patience
}

// turn is a posting's turn to be posted.
type turn = lanes.Turn[*posting]

// readmitAfter is how old the script's answer may be when the post begins.
const readmitAfter = time.Second

// Bounds of the lease of a post.
var (
	leaseMargin  = 2 * time.Second // beyond SLACK_TIMEOUT, for the record of a post
	leaseRecheck = time.Second     // between two looks at an event that another replica may be posting
)

// errLetterPending ends an event's way here: it is settled when its letter is stored; see letterbox.
var errLetterPending = errors.New("its dead letter is pending")

// finish ends an event's way. It returns an error when ctx ends, and errLetterPending.
type finish func(ctx context.Context, p *posting) error

// result is what an attempt, or a step of it, leads to.
type result struct {
	finish finish        // how the event ends; nil: not yet
	wait   time.Duration // without a finish: when to make the next attempt, at the earliest
}

func endWith(f finish) *result              { return &result{finish: f} }
func tryAgainAfter(d time.Duration) *result { return &result{wait: d} }

// enqueue puts an admitted event into its channel's lane.
func (w *Worker) enqueue(a admitted) {
	p := &posting{admitted: a, channel: w.poster.Channel(a.event)}
	p.settled = Settled{Event: a.event, Channel: p.channel, Decided: a.asked, delivery: a.delivery}
	w.lanes.Add(laneOf(p.channel), lanes.Item[*posting]{Value: p, Bytes: a.delivery.cost, Since: a.event.Published})
}

// webhookLane is the lane of a webhook's own channel, whose name is not known.
const webhookLane = "webhook"

func laneOf(channel string) string {
	if channel == "" {
		return webhookLane
	}
	return channel
}

// postAll gives one event after the other its turn until there are no more. No post begins after startCtx has ended; one that
// is under way may go on until finishCtx ends, because a post that is cut off may have reached Slack, and would be made again.
func (w *Worker) postAll(startCtx, finishCtx context.Context) {
	for {
		t, err := w.lanes.Next(startCtx)
		if err != nil {
			return // what is left in the lanes stays in flight, and is returned when Run ends
		}
		w.deliver(startCtx, finishCtx, t)
	}
}

// deliver makes one attempt, and settles the event if that ends its way. Otherwise the event goes back into its lane.
func (w *Worker) deliver(startCtx, finishCtx context.Context, t *turn) {
	p := t.Item
	r := w.attempt(startCtx, finishCtx, p, t)
	if r.finish == nil {
		t.Return(r.wait)
		return
	}
	defer t.Done()
	if err := r.finish(finishCtx, p); err == nil { // it sets the outcome
		w.settle([]Settled{p.settled})
	}
}

// attempt makes at most one post. It checks first that the event may still be posted, that it is not in Slack already, and
// that neither a pause nor the pace nor another replica prevents the post. It waits for nothing but the answers of Redis and
// Slack.
func (w *Worker) attempt(startCtx, finishCtx context.Context, p *posting, t *turn) result {
	if r := w.readmit(startCtx, p); r != nil {
		return *r
	}
	if r := w.lookUp(startCtx, p, t); r != nil {
		return *r
	}
	if r := w.expire(startCtx, p); r != nil {
		return *r
	}
	if r := w.mute(startCtx, p); r != nil {
		return *r
	}
	if w.refused.closed(p.channel) {
		if r := w.endUnposted(startCtx, p); r != nil {
			return *r
		}
	}
	name, r := w.begin(startCtx, p, t)
	if r != nil {
		return *r
	}
	receipt, failure := w.post(finishCtx, p)
	if failure == nil {
		w.accepted(finishCtx, p, t, name, receipt)
		return result{finish: w.recordSent}
	}
	return w.refusedOrFailed(startCtx, finishCtx, p, t, name, failure)
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

// tooOld reports whether an event is older than EVENT_MAX_AGE.
func (w *Worker) tooOld(e event.Event) bool {
	return w.settings.MaxAge > 0 && time.Since(e.Time) > w.settings.MaxAge
}

// expire drops an event that has become older than EVENT_MAX_AGE while it waited, and gives its slots back. It goes on to the
// post (nil) when there is nothing to give back: then another replica may be posting the event.
func (w *Worker) expire(ctx context.Context, p *posting) *result {
	if !w.tooOld(p.event) {
		return nil
	}
	if !p.settled.Ambiguous { // else it may be in the channel, and keeps them
		refunded, err := w.refund(ctx, p)
		if err != nil {
			return w.redisFailed(ctx, err)
		}
		if !refunded {
			return nil
		}
	}
	p.settled.Outcome, p.settled.Reason = outcome.Dropped, outcome.Expired
	return endWith(recordNothing)
}

// endUnposted ends an event whose channel refuses every message, without a permit, which would count in the pace. It goes on
// to the permit (nil) when Redis does not have the event as this worker knows it: then that finds out whether another
// replica's post may have arrived.
func (w *Worker) endUnposted(ctx context.Context, p *posting) *result {
	record, found, err := w.limiter.InFlight(ctx, p.request)
	if err != nil {
		return w.redisFailed(ctx, err)
	}
	known := record.Posts == 0 || record.LastName == p.last || record.LastName == p.name
	if !found || record.Delivery != p.request.Delivery || !known {
		return nil
	}
	return endWith(w.recordRefusedChannel)
}

// begin asks Redis for a permit, which records the post before it is made and takes its place in the channel's pace. name is
// the post's.
func (w *Worker) begin(ctx context.Context, p *posting, t *turn) (name string, r *result) {
	if p.name == "" {
		p.name = w.name + "-" + strconv.FormatUint(w.begun.Add(1), 36)
	}
	name = p.name
	asked := time.Now()
	permit, err := w.limiter.Begin(ctx, ratelimit.Post{
		Request: p.request, Channel: p.channel, Known: p.last, Name: name, Longest: w.longestPost(),
	})
	if err != nil {
		return "", w.redisFailed(ctx, err) // it may be recorded: the next call has the same name
	}
	w.availability.recovered(redisScripts)
	if permit.Status != ratelimit.Granted {
		return "", w.notPermitted(p, t, permit)
	}
	if time.Since(asked) > readmitAfter { // this process stood still: the answer is out of date, and is asked for again
		return "", tryAgainAfter(0)
	}
	p.last, p.name = name, ""
	if w.refused.try(p.channel) {
		return name, nil
	}
	return "", endWith(w.recordRefusedChannel)
}

// longestPost is how long a post may take, with the record of its result.
func (w *Worker) longestPost() time.Duration { return w.settings.PostTimeout + leaseMargin }

// notPermitted is what an answer other than a permit leads to.
func (w *Worker) notPermitted(p *posting, t *turn, permit ratelimit.Permit) *result {
	switch permit.Status {
	case ratelimit.WorkspacePaused:
		t.PauseWorkspace(permit.Wait)
		if permit.Wait >= time.Second { // less is another replica's probe
			w.availability.lost(slackPosts, askedToWait(permit.Wait))
		}
	case ratelimit.ChannelPaused:
		t.PauseChannel(permit.Wait)
		if permit.Wait >= time.Second {
			w.availability.channelLost(laneOf(p.channel), askedToWait(permit.Wait))
		}
	case ratelimit.Paced:
		t.Pace(permit.Wait)
	case ratelimit.Leased:
		return tryAgainAfter(min(permit.Wait, leaseRecheck))
	case ratelimit.OutcomeUnknown: // a worker that has crashed, or lost the event to this one, has begun a post
		p.unsure, p.last, p.settled.Ambiguous = true, permit.Last, true
		p.settled.Attempts = max(p.settled.Attempts, permit.Posts)
	default: // NotInFlight: settled by another replica, or older than its window
		p.asked = time.Time{}
	}
	return tryAgainAfter(0)
}

// post makes the post, and notes in p what a failure leaves unknown.
func (w *Worker) post(ctx context.Context, p *posting) (slackout.Receipt, *slackout.Error) {
	p.settled.Attempts++
	p.settled.Posted = time.Now()
	receipt, err := w.poster.Post(ctx, p.event)
	failure := postFailure(err)
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

// redisFailed notes that Redis has not answered, and has the attempt made again. Until then no other is made: it would fail
// in the same way.
func (w *Worker) redisFailed(ctx context.Context, err error) *result {
	pause := wait.Jitter(retryPause)
	if ctx.Err() == nil {
		w.availability.lost(redisScripts, err)
		w.lanes.Hold(pause)
	}
	return tryAgainAfter(pause + retryPause/2) // after others: should Redis fail for this event alone, it is not the only probe
}

// inSlack takes over what Slack reports of the message.
func (p *posting) inSlack(receipt slackout.Receipt) {
	p.settled.Latency = time.Since(p.event.Published)
	if receipt.Channel != "" {
		p.settled.Channel = receipt.Channel
	}
	p.settled.SlackTS = receipt.TS
	p.settled.Outcome = outcome.Sent
}
