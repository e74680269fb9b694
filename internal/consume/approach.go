package consume

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
)

// way is how an event goes on that has come to the gate.
type way int

const (
	lookAgain     way = iota + 1 // something has to be waited for; the gate has been left
	post                         // post it now
	probe                        // the same, as the first of all replicas after a pause
	alreadyThere                 // it is in Slack
	elsewhere                    // it is no longer ours to post: posting.settled says what became of it
	closedChannel                // its channel refuses everything
)

// Bounds of what an event waits for before its post.
const (
	askAgainAfter = time.Second     // how old the script's answer may be when the post begins
	longestLook   = 5 * time.Second // how long a pause of Slack's history is waited out, see lookForIt
	mostLooks     = 3               // and how often
	leaseMargin   = 2 * time.Second // beyond SLACK_TIMEOUT, for the record of a post
	elsewhereLook = time.Second     // between two looks at an event that another replica may be posting
)

// approach is everything between the gate and the post: is the admission still good, may the event be in Slack already,
// is there a pause, is another replica at it. Unless it says post or probe, it has left the gate. It fails only when ctx
// ends.
func (w *Worker) approach(ctx context.Context, p *posting, round int) (way, error) {
	if ctx.Err() != nil {
		w.gate.rest(round, 0)
		return 0, ctx.Err()
	}
	if time.Since(p.asked) > askAgainAfter {
		decision, err := w.askAgain(ctx, p)
		if err != nil {
			w.gate.rest(round, 0)
			return 0, err
		}
		if decision.Outcome != ratelimit.Admitted {
			w.gate.rest(round, 0)
			p.drop(decision)
			return elsewhere, nil
		}
	}
	if p.unsure {
		found, err := w.lookForIt(ctx, p, round)
		switch {
		case err != nil:
			return 0, err
		case found:
			return alreadyThere, nil
		case p.unsure: // it could not be looked now
			return lookAgain, nil
		}
	}
	asked := time.Now()
	permit, err := w.begin(ctx, p)
	switch {
	case err != nil:
		w.gate.rest(round, 0)
		return 0, err
	case permit.Leave == ratelimit.Paused:
		w.gate.rest(round, permit.Wait)
		if permit.Wait >= time.Second { // less is another replica's probe
			w.waits.begin(waitSlack, errPaused)
		}
		return lookAgain, nil
	case permit.Leave == ratelimit.Elsewhere:
		w.gate.rest(round, 0)
		if !sleep(ctx, min(permit.Wait, elsewhereLook)) {
			return 0, ctx.Err()
		}
		return lookAgain, nil
	case permit.Leave == ratelimit.Unsure: // a worker that has crashed, or lost the event to this one, has begun a post
		w.gate.rest(round, 0)
		p.unsure, p.last, p.settled.Ambiguous = true, permit.Last, true
		p.settled.Attempts = max(p.settled.Attempts, permit.Posts)
		return lookAgain, nil
	case permit.Leave == ratelimit.Unknown: // settled by another replica, or older than its window
		w.gate.rest(round, 0)
		p.asked = time.Time{}
		return lookAgain, nil
	}
	if time.Since(asked) > askAgainAfter { // this process stood still: the answer is out of date
		w.gate.rest(round, 0)
		return lookAgain, nil
	}
	if permit.Leave == ratelimit.Probe {
		return probe, nil
	}
	if code, closed := w.channels.closed(p.settled.Channel); closed {
		w.gate.rest(round, 0)
		p.settled.Detail = code
		return closedChannel, nil
	}
	return post, nil
}

// drop notes that the event may no longer be posted.
func (p *posting) drop(decision ratelimit.Decision) {
	dropped := refused(p.event, p.delivery, decision)
	dropped.Attempts, dropped.Ambiguous, dropped.Decided = p.settled.Attempts, p.settled.Ambiguous, time.Now()
	p.settled = dropped
}

// askAgain asks whether an event that was held may still be posted. While its admission counts, the answer is yes and
// costs nothing; when it has outlived every window, the event is decided anew.
func (w *Worker) askAgain(ctx context.Context, p *posting) (ratelimit.Decision, error) {
	decisions, err := w.decide(ctx, []ratelimit.Request{p.request})
	if err != nil {
		return ratelimit.Decision{}, err
	}
	p.asked = time.Now()
	return decisions[0], nil
}

// errPaused is Slack's word to another replica.
var errPaused = errors.New("another replica was asked by Slack to pause")

func (w *Worker) begin(ctx context.Context, p *posting) (permit ratelimit.Permit, err error) {
	name := w.name + "-" + strconv.FormatUint(w.begun.Add(1), 36)
	err = w.hold(ctx, waitRedis, func() (err error) {
		permit, err = w.limiter.Begin(ctx, p.request, p.last, name, w.settings.PostTimeout+leaseMargin)
		return err
	})
	if permit.Leave == ratelimit.Go || permit.Leave == ratelimit.Probe {
		p.last = name
	}
	return permit, err
}

// lookForIt looks whether an event stands in its channel already. It leaves p.unsure on when that is still to be found
// out; then, and when the event was found, it has left the gate.
func (w *Worker) lookForIt(ctx context.Context, p *posting, round int) (found bool, err error) {
	receipt, found, err := w.poster.Find(ctx, p.event)
	if err == nil {
		p.unsure = false
		if found {
			w.slackAnswered(round)
			p.note(receipt)
			p.settled.Found = true
		}
		return found, nil
	}
	if ctx.Err() != nil {
		w.gate.rest(round, 0)
		return false, ctx.Err()
	}
	var failure *slackout.Error
	if !errors.As(err, &failure) {
		w.history.cannot(w.log, err)
		p.unsure = false
		return false, nil
	}
	p.looks++
	switch {
	case p.looks > mostLooks || failure.RetryAfter > longestLook:
		w.history.cannot(w.log, failure)
		p.unsure = false
		return false, nil
	case failure.Class != slackout.RetryAfter: // Slack is away, so this look is the probe
		w.slackFailed(ctx, round, failure)
		return false, nil
	}
	// Reading is limited by itself, for some apps to once a minute. That is no reason for other posts to wait.
	w.gate.rest(round, 0)
	if !sleep(ctx, max(failure.RetryAfter, firstBackoff)) {
		return false, ctx.Err()
	}
	return false, nil
}

// history remembers that it was said why an event cannot be looked for.
type history struct {
	mu   sync.Mutex
	said map[string]bool
}

// cannot says a reason once. The reasons are a few words and codes.
func (h *history) cannot(log *zap.Logger, reason error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.said == nil {
		h.said = map[string]bool{}
	}
	if !h.said[reason.Error()] {
		h.said[reason.Error()] = true
		log.Warn("cannot look whether an ambiguous post has arrived; it is posted again", zap.Error(reason))
	}
}
