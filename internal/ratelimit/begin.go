package ratelimit

import (
	"context"
	"fmt"
	"time"
)

// Leave says whether a post may begin.
type Leave int

// The answers of Begin. The zero Leave is none, so that an answer nobody has given is never taken for one.
const (
	Go        Leave = iota + 1 // post it now
	Probe                      // post it now, as the first after a pause; then Pause.Lift or Pause.Extend
	Paused                     // post nothing for Permit.Wait
	Elsewhere                  // do not post this event for Permit.Wait: another replica may be doing so
	Unsure                     // the last of Permit.Posts, Permit.Last, is not known to the caller: it may be in Slack
	Unknown                    // it is not in flight for this delivery: ask Admit
)

// Permit is the answer of Begin.
type Permit struct {
	Leave Leave
	Posts int           // Go, Probe: posts of this event that have begun, with this one. Unsure: without
	Wait  time.Duration // Paused, Elsewhere: how long, above 0
	Last  string        // Unsure: the name of that post
}

// Begin asks for a permit to post an admitted event, and records the post before it is made. known is the name of the last
// post of the event whose result the caller knows, or that Unsure named; empty: none. name is that of this post: unique,
// without colons and spaces. longest is the time that one post may take. Errors are as for Admit; after one the post may
// be recorded, and asking again with the same name gives the same answer.
func (l *Limiter) Begin(ctx context.Context, request Request, known, name string, longest time.Duration) (Permit, error) {
	keyNames := []string{l.keys.inFlight(), l.keys.pause(), l.keys.probe()}
	reply, err := l.begin.Run(ctx, l.redis, keyNames, member(request.ID), request.Delivery, known, name, micros(longest)).Result()
	if err != nil {
		return Permit{}, fmt.Errorf("redis: cannot permit the post of %q: %w", request.ID, err)
	}
	permit, err := decodePermit(reply)
	if err != nil {
		return Permit{}, fmt.Errorf("redis: unexpected reply from begin.lua: %w", err)
	}
	return permit, nil
}

// leaves are the answers by begin.lua's numbers.
var leaves = map[int64]Leave{0: Paused, 1: Go, 2: Probe, 3: Elsewhere, 4: Unsure, 5: Unknown}

func decodePermit(reply any) (Permit, error) {
	fields, err := list(reply, "reply", 3)
	if err != nil {
		return Permit{}, err
	}
	code, err := number(fields[0], "leave")
	if err != nil {
		return Permit{}, err
	}
	value, err := number(fields[1], "number")
	if err != nil {
		return Permit{}, err
	}
	last, ok := fields[2].(string)
	if !ok {
		return Permit{}, fmt.Errorf("name is a %T, expected a text", fields[2])
	}
	leave, known := leaves[code]
	if !known {
		return Permit{}, fmt.Errorf("leave %d, expected 0 to 5", code)
	}
	if value < 0 || (value == 0 && leave != Unknown) {
		return Permit{}, fmt.Errorf("leave %d with %d, expected a number above 0", code, value)
	}
	switch leave {
	case Paused, Elsewhere:
		return Permit{Leave: leave, Wait: time.Duration(value) * time.Microsecond}, nil
	case Unknown:
		return Permit{Leave: leave}, nil
	default:
		return Permit{Leave: leave, Posts: int(value), Last: last}, nil
	}
}
