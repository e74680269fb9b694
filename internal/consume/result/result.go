// Package result has the value in which a worker writes down how an event has ended. Every step on an event's
// way returns it or adds to it; package consume alone logs it, counts it and acknowledges its event.
package result

import (
	"time"

	"notifier/internal/consume/feed"
	"notifier/internal/event"
	"notifier/internal/ratelimit"
	"notifier/internal/steering"
)

// Result is how one event has ended, or what is known of that so far.
type Result struct {
	Event   event.Event
	Outcome string // one of package outcome's
	Reason  string // one of package outcome's; empty when sent
	Detail  string // dead: what was wrong, or Slack's code

	LetterSeq uint64 // dead: the sequence of its letter in the dead-letter stream; 0: not known

	NoLetter bool // dead: it has no letter, for want of room or because its category has written its share

	Tier       ratelimit.Tier // dropped by a limit: the tier that refused
	RetryAfter time.Duration  // dropped by a limit: when an event of its cost would fit
	AtLeast    bool           // ... or later
	Never      bool           // dropped by a temporary limit below its cost: it does not fit before that ends
	Reserved   int            // dropped by the global limit: slots of the tier kept for other categories

	Mute *steering.Order // dropped as muted: by which mute

	Channel   string        // sent or rejected by Slack: the channel
	SlackTS   string        // sent with a token: names the message
	Attempts  int           // posts that were begun, those of crashed workers included as far as they are known
	Latency   time.Duration // sent: from publication to Slack's answer
	Ambiguous bool          // an earlier attempt may have reached Slack too
	Found     bool          // sent: such an attempt was found in the channel, and no other was made

	Header  map[string][]string // the message's, as far as they are kept; read only
	Decided time.Time           // when the script decided; zero: it was not asked
	Posted  time.Time           // when the last post began; zero: none was made

	Delivery *feed.Delivery // it ends when the event is settled
	Ended    time.Time      // dead: when that was decided
}

// StreamSeq is the event's sequence in its stream; 0: it has none.
func (r *Result) StreamSeq() uint64 {
	if r.Delivery == nil {
		return 0
	}
	return r.Delivery.Seq
}
