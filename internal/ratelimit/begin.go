package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Post is one post that a worker wants to make.
type Post struct {
	Request Request       // the event; the zero Request: a message without an event, the digest
	Channel string        // as the settings name it: an ID, a name, or "" with a webhook
	Known   string        // name of the last post of it whose result the caller knows or has looked up; or empty
	Name    string        // of this post: unique, without colons and blanks
	Longest time.Duration // how long it may take, with the record of its result; above 0
	First   bool          // it takes the channel's next slot, before everybody who waits for one (the digest)

	// Worker names the caller. A full pace leaves a slot to the oldest post of each worker. If Worker is empty,
	// the post neither leaves one to others nor has one left to it.
	Worker string
	Since  time.Time // since when the post waits, by a clock that all workers share
}

// PermitStatus is whether a post may begin.
type PermitStatus int

// The replies of Begin. The zero PermitStatus is invalid: a missing reply permits nothing.
const (
	Granted         PermitStatus = iota + 1 // post it now, and report Slack's answer with Answered
	WorkspacePaused                         // post nothing for Permit.Wait
	ChannelPaused                           // post nothing to this channel for Permit.Wait
	Paced                                   // the same: its pace has no room
	Leased                                  // do not post this event: another replica may be posting it
	LastPostUnknown                         // the result of Permit.Last is unknown: it may be in Slack
	NotInFlight                             // the event is not in flight for this delivery: ask Admit
)

// Permit is the answer of Begin.
type Permit struct {
	Status PermitStatus
	Posts  int           // posts of this event that have begun; Granted: with this one
	Wait   time.Duration // WorkspacePaused, ChannelPaused, Paced, Leased: how long, above 0
	Last   string        // LastPostUnknown: the name of the last post
}

// webhookChannel stands for the one channel of a webhook, which the settings do not name.
const webhookChannel = "webhook"

// unpacedWindow is for how long a post that is asked for again is the same one, where there is no pace.
const unpacedWindow = 10 * time.Second

// Begin asks for permission to make a post, and records the post before it is made. Errors are Admit's; after
// an error the post may have been recorded. A repeated call with the same name gets the same answer, and
// takes nothing twice.
func (l *Limiter) Begin(ctx context.Context, post Post) (Permit, error) {
	event := ""
	if post.Request != (Request{}) {
		event = post.Request.member()
	}
	channel, pace := cmp.Or(post.Channel, webhookChannel), l.standing.Pace
	keyNames := []string{l.keys.inFlight(), l.keys.pauses(), l.keys.probes(), l.keys.pace(channel),
		l.keys.meta(), l.keys.paceWaiting(channel)}
	var permit Permit
	var unexpected error
	err := l.onKnownStore(ctx, func() error {
		epoch := l.journal.begin()
		reply, err := l.begin.Run(ctx, l.redis, keyNames,
			event, post.Request.Delivery, post.Known, post.Name, micros(post.Longest), channel,
			strconv.Itoa(pace.Count), micros(cmp.Or(pace.Window, unpacedWindow)), flag(post.First),
			micros(LongestPause),
			micros(l.plan.Load().remembers), l.knownToken(),
			post.Worker, strconv.FormatInt(max(0, post.Since.UnixMicro()), 10),
		).Result()
		if err != nil {
			return l.explain(ctx, err, keyNames)
		}
		if _, err := replyWord(reply); errors.Is(err, ErrHealing) {
			return err
		}
		permit, unexpected = decodePermit(reply)
		granted := unexpected == nil && permit.Status == Granted
		if event != "" && granted && !l.journal.begun(epoch, event, post.Name, permit.Posts) {
			return ErrHealing // the post was recorded in a store that may have been lost since
		}
		return nil
	})
	if err != nil {
		return Permit{}, fmt.Errorf("redis: cannot permit the post of %q: %w", post.Request.ID, err)
	}
	if unexpected != nil {
		return Permit{}, fmt.Errorf("redis: unexpected reply from begin.lua: %w", unexpected)
	}
	return permit, nil
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// permitStatuses are the answers by begin.lua's words.
var permitStatuses = map[string]PermitStatus{
	"post": Granted, "wait workspace": WorkspacePaused, "wait channel": ChannelPaused, "wait pace": Paced,
	"wait event": Leased, "unknown": LastPostUnknown, "not in flight": NotInFlight,
}

func decodePermit(reply any) (Permit, error) {
	fields, err := list(reply, "reply", 3)
	if err != nil {
		return Permit{}, err
	}
	word, value, err := wordAndNumber(fields)
	if err != nil {
		return Permit{}, err
	}
	last, isText := fields[2].(string)
	if !isText {
		return Permit{}, fmt.Errorf("name is a %T, expected a text", fields[2])
	}
	status, known := permitStatuses[word]
	switch {
	case !known:
		return Permit{}, fmt.Errorf("status %q, expected one of begin.lua's", word)
	case (status == NotInFlight) != (value == 0) || value < 0:
		return Permit{}, fmt.Errorf("%q with %d, expected a number above 0, or 0 if not in flight", word,
			value)
	case status != LastPostUnknown && last != "":
		return Permit{}, fmt.Errorf("%q with the name %q, expected none", word, last)
	case status == NotInFlight:
		return Permit{Status: status}, nil
	case status == Granted, status == LastPostUnknown:
		return Permit{Status: status, Posts: int(value), Last: last}, nil
	case value > LongestPause.Microseconds():
		return Permit{}, fmt.Errorf("%q with %d, expected no time above %s", word, value, LongestPause)
	}
	return Permit{Status: status, Wait: span(value)}, nil
}

// wordAndNumber reads the first two fields of a reply.
func wordAndNumber(fields []any) (word string, value int64, err error) {
	word, isText := fields[0].(string)
	if !isText {
		return "", 0, fmt.Errorf("status is a %T, expected a word", fields[0])
	}
	value, err = number(fields[1], "number")
	return word, value, err
}
