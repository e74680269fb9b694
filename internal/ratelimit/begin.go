package ratelimit

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Post is one post that a worker wants to make.
type Post struct {
	Request Request       // the event; the zero Request: a message without an event, the digest
	Channel string        // as the settings name it: an ID, a name, or "" with a webhook
	Known   string        // name of the last post of this event whose result the caller knows, or has looked up; empty: none
	Name    string        // of this post: unique, without colons and blanks
	Longest time.Duration // how long it may take, with the record of its result; above 0
	First   bool          // it takes the channel's next slot, before everybody who waits for one (the digest)
}

// PermitStatus is whether a post may begin.
type PermitStatus int

// The answers of Begin. The zero PermitStatus is none of them, so that a missing answer is never taken for one.
const (
	Granted         PermitStatus = iota + 1 // post it now, and report Slack's answer with Answered
	GrantedAsProbe                          // the same, as the first after a pause
	WorkspacePaused                         // post nothing for Permit.Wait
	ChannelPaused                           // post nothing to this channel for Permit.Wait
	Paced                                   // post nothing to this channel for Permit.Wait: its pace has no room, or another post is about to show its ID
	Leased                                  // do not post this event for Permit.Wait: another replica may be posting it
	OutcomeUnknown                          // the caller does not know how the last post, Permit.Last, ended: it may be in Slack
	NotInFlight                             // the event is not in flight for this delivery: ask Admit
)

// Permit is the answer of Begin.
type Permit struct {
	Status PermitStatus
	Posts  int           // Granted, GrantedAsProbe: posts of this event that have begun, this one included. OutcomeUnknown: without this one
	Wait   time.Duration // WorkspacePaused, ChannelPaused, Paced, Leased: how long, above 0
	Last   string        // OutcomeUnknown: the name of the last post
	Reason error         // ChannelPaused: why, where Slack has not asked for it: a DamagedKey; else nil
}

// Begin asks for permission to make a post, and records the post before it is made. Errors are Admit's; after an error the
// post may have been recorded. A repeated call with the same name gets the same answer, and takes nothing twice.
func (l *Limiter) Begin(ctx context.Context, post Post) (Permit, error) {
	event := ""
	if post.Request != (Request{}) {
		event = post.Request.member()
	}
	var pace string
	reply, err := l.withChannel(post.Channel, func(key, learns string) (string, any, error) {
		pace = l.keys.pace(key)
		keyNames := []string{l.keys.inFlight(), l.keys.pauses(), l.keys.probes(), l.keys.channels(), pace, l.keys.register()}
		reply, err := l.begin.Run(ctx, l.redis, keyNames, event, post.Request.Delivery, post.Known, post.Name, micros(post.Longest),
			channelName(post.Channel), key, learns, strconv.Itoa(l.rules.Pace.Count), micros(l.rules.Pace.Window), flag(post.First), micros(LongestPause)).Result()
		return otherChannel(reply, useChannel), reply, l.explain(ctx, err, keyNames)
	})
	if err != nil {
		return Permit{}, fmt.Errorf("redis: cannot permit the post of %q: %w", post.Request.ID, err)
	}
	permit, err := decodePermit(reply)
	if err != nil {
		return Permit{}, fmt.Errorf("redis: unexpected reply from begin.lua: %w", err)
	}
	if event != "" && (permit.Status == Granted || permit.Status == GrantedAsProbe) {
		l.journal.begun(event, post.Name, permit.Posts)
	}
	if permit.Last == paceDamaged && permit.Status == ChannelPaused {
		permit.Last, permit.Reason = "", DamagedKey{Key: pace}
	}
	return permit, nil
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// useChannel is begin.lua's answer that the channel has another key.
const useChannel = 8

// paceDamaged is the text with which begin.lua pauses a channel whose key is of another type.
const paceDamaged = "damaged"

// permitStatuses are the answers by begin.lua's numbers.
var permitStatuses = map[int64]PermitStatus{
	0: WorkspacePaused, 1: Granted, 2: GrantedAsProbe, 3: Leased, 4: OutcomeUnknown, 5: NotInFlight, 6: ChannelPaused, 7: Paced,
}

func decodePermit(reply any) (Permit, error) {
	code, value, last, err := threeFields(reply, "status")
	if err != nil {
		return Permit{}, err
	}
	status, known := permitStatuses[code]
	if !known {
		return Permit{}, fmt.Errorf("status %d, expected 0 to 7", code)
	}
	if value < 0 || (value == 0 && status != NotInFlight) {
		return Permit{}, fmt.Errorf("status %d with %d, expected a number above 0", code, value)
	}
	switch status {
	case WorkspacePaused, ChannelPaused, Paced, Leased:
		if value > LongestPause.Microseconds() {
			return Permit{}, fmt.Errorf("status %d with %d, expected no time above %s", code, value, LongestPause)
		}
		return Permit{Status: status, Wait: time.Duration(value) * time.Microsecond, Last: last}, nil
	case NotInFlight:
		return Permit{Status: status}, nil
	default:
		return Permit{Status: status, Posts: int(value), Last: last}, nil
	}
}

// threeFields reads a reply of two numbers and a text.
func threeFields(reply any, name string) (first, second int64, last string, err error) {
	fields, err := list(reply, "reply", 3)
	if err != nil {
		return 0, 0, "", err
	}
	if first, err = number(fields[0], name); err != nil {
		return 0, 0, "", err
	}
	if second, err = number(fields[1], "number"); err != nil {
		return 0, 0, "", err
	}
	last, ok := fields[2].(string)
	if !ok {
		return 0, 0, "", fmt.Errorf("name is a %T, expected a text", fields[2])
	}
	return first, second, last, nil
}
