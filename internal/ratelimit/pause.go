package ratelimit

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// LongestPause is the longest time that Slack may ask for: a longer one is cut to it. A pause in Redis that
// lasts longer was not written by a notifier, and counts for nothing. 1 hour.
const LongestPause = time.Hour

// Answer is what Slack has answered to a post. The zero answer, but for the names: Slack has not made the
// post, and has not refused it by a limit.
type Answer struct {
	Request    Request       // the event; the zero Request: a message without an event
	Channel    string        // as given to Begin
	Name       string        // of the post
	Posted     bool          // the post is made
	RetryAfter time.Duration // above 0: Slack refused the post by a limit, and asks to wait for this long
	Failed     bool          // neither this post nor an earlier one of the event reached Slack
}

// word is the answer as answered.lua has it.
func (a Answer) word() string {
	switch {
	case a.RetryAfter > 0:
		return "refused"
	case a.Posted:
		return "posted"
	}
	return "failed"
}

// PauseScope is what an answer has paused.
type PauseScope int

// What an answer can pause.
const (
	NoPause PauseScope = iota
	PausedChannel
	PausedWorkspace // and the channel
)

// pauseScopes are these by answered.lua's words.
var pauseScopes = map[string]PauseScope{
	"none": NoPause, "channel": PausedChannel, "workspace": PausedWorkspace,
}

// Answered moves the post's slot in the pace to now, and ends the pause whose probe the post was, or begins
// one: of the channel, or of the workspace too if a second channel is refused before any post was made since
// the first refusal. It returns the pause that this answer caused, and its length from now. After a certain
// failure every worker treats the event as not posted. Errors are as for Admit; repeating the call is
// harmless.
func (l *Limiter) Answered(ctx context.Context, answer Answer) (PauseScope, time.Duration, error) {
	channel := cmp.Or(answer.Channel, webhookChannel)
	keyNames := []string{l.keys.pauses(), l.keys.probes(), l.keys.pace(channel), l.keys.inFlight()}
	event := ""
	if answer.Failed && answer.Request != (Request{}) {
		event = answer.Request.member()
		l.journal.failed(event, answer.Name) // first: it holds even if recording it fails
	}
	var reply any
	err := l.onKnownStore(ctx, func() (err error) {
		reply, err = l.answered.Run(ctx, l.redis, keyNames,
			channel, answer.Name, answer.word(), micros(max(answer.RetryAfter, 0)), micros(LongestPause),
			event, answer.Request.Delivery,
		).Result()
		return l.explain(ctx, err, keyNames)
	})
	if err != nil {
		return NoPause, 0, fmt.Errorf("redis: cannot record the answer to post %q: %w", answer.Name, err)
	}
	scope, left, err := decodeAnswered(reply)
	if err != nil {
		return NoPause, 0, fmt.Errorf("redis: unexpected reply from answered.lua: %w", err)
	}
	return scope, left, nil
}

func decodeAnswered(reply any) (PauseScope, time.Duration, error) {
	fields, err := list(reply, "reply", 2)
	if err != nil {
		return NoPause, 0, err
	}
	word, left, err := wordAndNumber(fields)
	if err != nil {
		return NoPause, 0, err
	}
	scope, known := pauseScopes[word]
	if !known {
		return NoPause, 0, fmt.Errorf("status %q, expected one of answered.lua's", word)
	}
	if left < 0 || left > LongestPause.Microseconds() {
		return NoPause, 0, fmt.Errorf("%q with %d, expected a time from 0 to %s", word, left, LongestPause)
	}
	return scope, span(left), nil
}

// Pause is a time that Slack has asked for, during which no replica posts to a channel, or posts at all. When
// it is over one replica posts first; see Limiter.Begin.
type Pause struct {
	Channel string        // as the settings name it; "webhook"; empty: the workspace
	Left    time.Duration // above 0
}

// String is the pause for people: "#alerts: Slack asked to wait 12 s".
func (p Pause) String() string {
	text := fmt.Sprintf("Slack asked to wait %.0f s", math.Ceil(p.Left.Seconds()))
	if p.Channel == "" {
		return text
	}
	return p.Channel + ": " + text
}

// Pauses returns the pauses that are in force: the workspace's first, then those of channels by name. Errors
// are as for Admit.
func (l *Limiter) Pauses(ctx context.Context) ([]Pause, error) {
	keyNames := []string{l.keys.pauses()}
	reply, err := l.pauses.Run(ctx, l.redis, keyNames, micros(LongestPause)).Result()
	if err != nil {
		return nil, fmt.Errorf("redis: cannot read Slack's pauses: %w", l.explain(ctx, err, keyNames))
	}
	pauses, err := decodePauses(reply)
	if err != nil {
		return nil, fmt.Errorf("redis: unexpected reply from pauses.lua: %w", err)
	}
	return pauses, nil
}

// LongestPause returns how much is left of the longest pause that is in force; 0: there is none.
func (l *Limiter) LongestPause(ctx context.Context) (time.Duration, error) {
	pauses, err := l.Pauses(ctx)
	var longest time.Duration
	for _, pause := range pauses {
		longest = max(longest, pause.Left)
	}
	return longest, err
}

func decodePauses(reply any) ([]Pause, error) {
	fields, err := list(reply, "pauses", -1)
	if err != nil {
		return nil, err
	}
	if len(fields)%2 != 0 {
		return nil, fmt.Errorf("%d entries of pauses, expected two each", len(fields))
	}
	pauses := make([]Pause, 0, len(fields)/2)
	for i := 0; i < len(fields); i += 2 {
		channel, isText := fields[i].(string)
		left, err := number(fields[i+1], "time left")
		if err != nil || !isText || left <= 0 || left > LongestPause.Microseconds() {
			return nil, fmt.Errorf("pause %v, %v, expected a channel and a time", fields[i], fields[i+1])
		}
		if channel == "*" {
			channel = ""
		}
		pauses = append(pauses, Pause{Channel: channel, Left: span(left)})
	}
	slices.SortFunc(pauses, func(a, b Pause) int { return cmp.Compare(a.Channel, b.Channel) })
	return pauses, nil
}
