package consume

import (
	"cmp"
	"time"

	"go.uber.org/zap"

	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/steering"
)

// Settled is what became of one event.
type Settled struct {
	Event   event.Event
	Outcome string // one of package outcome's
	Reason  string // one of package outcome's; empty when sent
	Detail  string // dead: what was wrong, or Slack's code

	LetterSeq uint64 // dead: the sequence of its letter in the dead-letter stream; 0: not known

	NoLetter bool // dead: it has no letter, because its category has written its share of them for now

	Tier       ratelimit.Tier // dropped by a limit: the tier that refused
	RetryAfter time.Duration  // dropped by a limit: when an event of its cost would fit
	AtLeast    bool           // ... or later
	Never      bool           // dropped by a limit for a while: its cost is above that, so it does not fit before that has ended
	Reserved   int            // dropped by the global limit: slots of the tier that are kept for other categories

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

	delivery *delivery
	ended    time.Time // dead: when that was decided
}

// StreamSeq is the event's sequence in its stream; 0: it has none.
func (s *Settled) StreamSeq() uint64 {
	if s.delivery == nil {
		return 0
	}
	return s.delivery.streamSeq
}

// settle ends a batch of events. It is the only place that logs them, counts them and acknowledges them, in this order: a
// line that is written twice after a crash is better than an event that nobody can account for.
func (w *Worker) settle(batch []Settled) {
	if len(batch) == 0 {
		return
	}
	lines := newLineWriter(w.eventLog(), w.settings.Group)
	for i := range batch {
		batch[i].Header = batch[i].delivery.Header
		lines.write(&batch[i])
	}
	_ = w.eventLog().Sync() // the lines are on their way before any acknowledgement is; a broken log is no reason to stop
	crash(afterLog)
	if w.observe != nil {
		w.observe(batch)
	}
	deliveries := make([]*delivery, 0, len(batch))
	for i := range batch {
		if batch[i].Outcome == outcome.Dead {
			w.checkAcknowledged(w.source.terminate(batch[i].delivery, batch[i].Reason))
		} else {
			deliveries = append(deliveries, batch[i].delivery)
		}
	}
	w.checkAcknowledged(w.source.acknowledge(deliveries))
	crash(afterAck)
	if w.republisher != nil {
		w.republisher.add(batch)
	}
	for i := range batch {
		w.inflight.release(batch[i].delivery)
	}
}

// eventLog writes the lines of settled events.
func (w *Worker) eventLog() *zap.Logger { return cmp.Or(w.settings.Events, w.log) }

// checkAcknowledged logs an acknowledgement that the connection has not taken. The event is delivered again and is then a
// duplicate.
func (w *Worker) checkAcknowledged(err error) {
	if err != nil {
		w.log.Warn("cannot acknowledge", zap.Error(err))
	}
}
