package ratelimit

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Post describes one post that a worker wants to make.
type Post struct {
	Request Request       // the event. The zero Request stands for a message without one, the digest.
	Channel string        // as in the settings: an ID or a name. Empty for a webhook.
	Known   string        // the event's last post with a result known to the caller. Empty before the first.
	Name    string        // of this post: unique, without colons and blanks
	Longest time.Duration // bounds the post and the record of its result, above 0
	First   bool          // takes the channel's next free slot, before all waiting posts (the digest)

	// Worker names the caller. A full pace leaves a slot to the oldest post of each worker. Without a name,
	// the post neither leaves slots to others nor gets one left to it.
	Worker string
	Since  time.Time // start of the wait, by a clock that all workers share
}

// PermitStatus is the decision about a post.
type PermitStatus int

// The zero PermitStatus is invalid, so that a missing reply permits nothing.
const (
	Granted         PermitStatus = iota + 1 // post now, and report the result with Answered
	WorkspacePaused                         // post nothing for Permit.Wait
	ChannelPaused                           // post nothing to this channel for Permit.Wait
	Paced                                   // the channel's pace has no room for Permit.Wait
	Leased                                  // another worker may be posting this event
	LastPostUnknown                         // the event may be in Slack: Permit.Last has no known result
	NotInFlight                             // the event is not in flight for this stream message; call Admit
)

// Permit is the result of Begin.
type Permit struct {
	Status PermitStatus
	Posts  int           // begun posts of this event, including a granted one
	Wait   time.Duration // above 0 for WorkspacePaused, ChannelPaused, Paced and Leased
	Last   string        // name of the last post, for LastPostUnknown
}

// permitted is a Permit with the time from which the event's slots count, in microseconds by the clock of
// Redis.
type permitted struct {
	Permit
	moved int64
}

// eventMember returns the event's member, or "" for a message without an event.
func (r Request) eventMember() string {
	if r == (Request{}) {
		return ""
	}
	return r.member()
}

// Begin requests permission for a post and records the post before it is made. The event's slots then count
// from the beginning of the post. If they no longer count, Begin returns NotInFlight. A call repeated with the
// same name takes nothing twice and renews the lease. If the lease has ended by then, Begin returns
// LastPostUnknown with this name, and the post needs another name. Errors are as for Admit; the post may have
// been recorded then.
func (l *Limiter) Begin(ctx context.Context, post Post) (permit Permit, err error) {
	event := post.Request.eventMember()
	err = l.onKnownStore(ctx, func() (err error) {
		epoch := l.journal.currentEpoch()
		reply, err := run(ctx, l, l.redis, l.beginCall(post, event), decodePermit)
		permit = reply.Permit
		granted := err == nil && permit.Status == Granted
		if event != "" && granted && !l.journal.recordPost(epoch, event, post.Name, permit.Posts, reply.moved) {
			return errHealing // the store that recorded the post may have been lost since
		}
		return err
	})
	if err != nil {
		return Permit{}, fmt.Errorf("redis: cannot permit the post of %q: %w", post.Request.ID, err)
	}
	return permit, nil
}

// LongestPause bounds the pauses that Slack can request; longer requests are cut to it. A longer pause in
// Redis has no effect, because notifier did not write it.
const LongestPause = time.Hour

// Answer is Slack's response to a post. If neither Posted nor RetryAfter is set, the post failed for another
// reason than a rate limit.
type Answer struct {
	Request    Request       // as given to Begin
	Channel    string        // as given to Begin
	Name       string        // of the post
	Posted     bool          // the message is in Slack
	RetryAfter time.Duration // above 0: Slack refused the post by a rate limit and requested this pause
	Failed     bool          // neither this post nor an earlier one of the event reached Slack
}

// PauseScope tells which posts a pause holds back.
type PauseScope int

// The scopes of a pause.
const (
	NoPause PauseScope = iota
	PausedChannel
	PausedWorkspace // includes the channel
)

// started is a pause that begins.
type started struct {
	scope PauseScope
	left  time.Duration
	moved int64 // from when the event's slots count, or 0
}

// Answered records Slack's response. The post's slot in the pace, and the event's slots in their logs, then
// count from now, and the pause that the post was to test ends. A response with RetryAfter pauses the
// channel. If a second channel is refused before any successful post, the workspace pauses too. Answered
// returns the new pause and its length from now.
//
// After Failed, every worker treats the event as not posted. Errors are as for Admit; the call may be
// repeated.
func (l *Limiter) Answered(ctx context.Context, answer Answer) (PauseScope, time.Duration, error) {
	event := answer.Request.eventMember()
	if answer.Failed && event != "" {
		l.journal.recordFailure(event, answer.Name) // before the call: the post failed even if the call does too
	}
	var pause started
	err := l.onKnownStore(ctx, func() (err error) {
		pause, err = run(ctx, l, l.redis, l.answeredCall(answer, event), decodeAnswered)
		l.journal.recordMove(event, pause.moved)
		return err
	})
	if err != nil {
		return NoPause, 0, fmt.Errorf("redis: cannot record the answer to post %q: %w", answer.Name, err)
	}
	return pause.scope, pause.left, nil
}

// AskedToWait begins every text about a pause that Slack has requested. Package status recognizes it.
const AskedToWait = "Slack asked to wait"

// Pause is a pause that Slack has requested. When it ends, one worker posts first; see Begin.
type Pause struct {
	Channel string        // as in the settings, or "webhook". Empty for the workspace.
	Left    time.Duration // above 0, up to LongestPause
}

// String returns text such as "#alerts: Slack asked to wait 12 s".
func (p Pause) String() string {
	text := fmt.Sprintf("%s %.0f s", AskedToWait, math.Ceil(p.Left.Seconds()))
	if p.Channel == "" {
		return text
	}
	return p.Channel + ": " + text
}

// Pauses returns the pauses in force: the workspace first, then channels by name. Errors are as for
// Admit.
func (l *Limiter) Pauses(ctx context.Context) ([]Pause, error) {
	pauses, err := run(ctx, l, l.redis, l.pausesCall(), decodePauses)
	if err != nil {
		return nil, fmt.Errorf("redis: cannot read Slack's pauses: %w", err)
	}
	return pauses, nil
}

// LongestPause returns the remaining time of the longest pause in force, or zero. Errors are as for Admit.
func (l *Limiter) LongestPause(ctx context.Context) (time.Duration, error) {
	pauses, err := l.Pauses(ctx)
	var left time.Duration
	for _, pause := range pauses {
		left = max(left, pause.Left)
	}
	return left, err
}
