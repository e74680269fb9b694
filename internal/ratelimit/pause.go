package ratelimit

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// Answer is what Slack has answered to a post.
type Answer struct {
	Channel    string        // as given to Begin
	ID         string        // the channel's ID in Slack's answer; empty: not known
	Name       string        // of the post
	RetryAfter time.Duration // above 0: Slack refused the post by a limit, and asks to wait for this long
}

// PauseScope is what an answer has paused.
type PauseScope int

// What an answer can pause.
const (
	NoPause PauseScope = iota
	PausedChannel
	PausedWorkspace // and the channel
)

// Answered moves the post's slot in the pace to now, and ends the pause whose probe the post was, or begins one: of the
// channel, or of the workspace if the signs are that it is limited as a whole (lua/answered.lua has them). It returns what
// is paused by this answer, and for how long from now. Errors are as for Admit; repeating the call is harmless.
func (l *Limiter) Answered(ctx context.Context, answer Answer) (PauseScope, time.Duration, error) {
	reply, err := l.withChannel(answer.Channel, func(key, learns string) (string, any, error) {
		id := answer.ID
		if learns == "0" || id == "" {
			id = key
		}
		keyNames := []string{
			l.keys.pauses(), l.keys.probes(), l.keys.channels(), l.keys.pace(key), l.keys.pace(id), l.keys.refusals(),
		}
		reply, err := l.answered.Run(ctx, l.redis, keyNames, channelName(answer.Channel), key, learns, answer.ID, answer.Name,
			micros(max(answer.RetryAfter, 0)), strconv.Itoa(l.standing.Pace.Count), micros(l.standing.Pace.Window), micros(LongestPause)).Result()
		if err == nil && learns == "1" && answer.ID != "" {
			l.channelKeys.Store(answer.Channel, answer.ID)
		}
		return otherChannel(reply, useOtherChannel), reply, l.explain(ctx, err, keyNames)
	})
	if err != nil {
		return NoPause, 0, fmt.Errorf("redis: cannot record the answer to post %q: %w", answer.Name, err)
	}
	scope, left, _, err := threeFields(reply, "scope")
	if err == nil && (scope < 0 || scope > int64(PausedWorkspace) || left < 0 || left > LongestPause.Microseconds()) {
		err = fmt.Errorf("scope %d with %d, expected 0 to 2 and a time from 0 to %s", scope, left, LongestPause)
	}
	if err != nil {
		return NoPause, 0, fmt.Errorf("redis: unexpected reply from answered.lua: %w", err)
	}
	return PauseScope(scope), time.Duration(left) * time.Microsecond, nil
}

// useOtherChannel is answered.lua's answer that the channel has another key.
const useOtherChannel = 3

// Pause is a time that Slack has asked for, during which no replica posts to a channel, or posts at all. When it is over one
// replica posts first; see Limiter.Begin.
type Pause struct {
	Channel string        // the name that the settings use, where it is known, else the ID; "webhook"; empty: the workspace
	ID      string        // of the channel, or its name while the ID is unknown; empty: the workspace
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

// Pauses returns the pauses that are in force: the workspace's first, then those of channels by name. Errors are as for
// Admit.
func (l *Limiter) Pauses(ctx context.Context) ([]Pause, error) {
	keyNames := []string{l.keys.pauses(), l.keys.channels()}
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
	fields, err := list(reply, "reply", 2)
	if err != nil {
		return nil, err
	}
	inForce, err := list(fields[0], "pauses", -1)
	if err != nil {
		return nil, err
	}
	names, err := channelNames(fields[1])
	if err != nil {
		return nil, err
	}
	if len(inForce)%2 != 0 {
		return nil, fmt.Errorf("%d entries of pauses, expected two each", len(inForce))
	}
	pauses := make([]Pause, 0, len(inForce)/2)
	for i := 0; i < len(inForce); i += 2 {
		id, isText := inForce[i].(string)
		left, err := number(inForce[i+1], "time left")
		if err != nil || !isText || left <= 0 || left > LongestPause.Microseconds() {
			return nil, fmt.Errorf("pause %v, %v, expected a channel and a time", inForce[i], inForce[i+1])
		}
		pause := Pause{Channel: cmp.Or(names[id], id), ID: id, Left: span(left)}
		if id == "*" {
			pause.Channel, pause.ID = "", ""
		}
		pauses = append(pauses, pause)
	}
	slices.SortFunc(pauses, func(a, b Pause) int { return cmp.Compare(a.Channel, b.Channel) })
	return pauses, nil
}

// channelNames is the names by ID; of several names of one channel the first in the alphabet.
func channelNames(reply any) (map[string]string, error) {
	fields, err := list(reply, "channels", -1)
	if err != nil || len(fields)%2 != 0 {
		return nil, fmt.Errorf("channels %v, expected names and IDs", reply)
	}
	names := map[string]string{}
	for i := 0; i < len(fields); i += 2 {
		name, isName := fields[i].(string)
		id, isID := fields[i+1].(string)
		if !isName || !isID {
			return nil, fmt.Errorf("channel %v with ID %v, expected texts", fields[i], fields[i+1])
		}
		if other, found := names[id]; !found || name < other {
			names[id] = name
		}
	}
	return names, nil
}
