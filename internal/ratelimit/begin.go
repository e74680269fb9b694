package ratelimit

import (
	"context"
	"fmt"
	"time"
)

// PermitStatus is whether a post may begin.
type PermitStatus int

// The answers of Begin. The zero PermitStatus is none of them, so that a missing answer is never taken for one.
const (
	Granted        PermitStatus = iota + 1 // post it now
	GrantedAsProbe                         // post it now, as the first after a pause; then Pause.Lift or Pause.Extend
	Paused                                 // post nothing for Permit.Wait
	Leased                                 // do not post this event for Permit.Wait: another replica may be posting it
	OutcomeUnknown                         // the caller does not know how the last post, Permit.Last, ended: it may be in Slack
	NotInFlight                            // the event is not in flight for this delivery: ask Admit
)

// Permit is the answer of Begin.
type Permit struct {
	Status PermitStatus
	Posts  int           // Granted, GrantedAsProbe: posts of this event that have begun, this one included. OutcomeUnknown: without this one
	Wait   time.Duration // Paused, Leased: how long, above 0
	Last   string        // OutcomeUnknown: the name of the last post
}

// Begin asks for permission to post an admitted event, and records the post before it is made. known is the name of the
// event's last post whose end the caller knows, or that OutcomeUnknown named; empty: none. name names this post: unique per
// post, without colons and blanks. longest is how long one post may take. Errors are Admit's; after an error the post may
// have been recorded, and a repeated call with the same name gets the same answer.
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

// permitStatuses are the answers by begin.lua's numbers.
var permitStatuses = map[int64]PermitStatus{
	0: Paused, 1: Granted, 2: GrantedAsProbe, 3: Leased, 4: OutcomeUnknown, 5: NotInFlight,
}

func decodePermit(reply any) (Permit, error) {
	fields, err := list(reply, "reply", 3)
	if err != nil {
		return Permit{}, err
	}
	code, err := number(fields[0], "status")
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
	status, known := permitStatuses[code]
	if !known {
		return Permit{}, fmt.Errorf("status %d, expected 0 to 5", code)
	}
	if value < 0 || (value == 0 && status != NotInFlight) {
		return Permit{}, fmt.Errorf("status %d with %d, expected a number above 0", code, value)
	}
	switch status {
	case Paused, Leased:
		return Permit{Status: status, Wait: time.Duration(value) * time.Microsecond}, nil
	case NotInFlight:
		return Permit{Status: status}, nil
	default:
		return Permit{Status: status, Posts: int(value), Last: last}, nil
	}
}
