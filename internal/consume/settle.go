package consume

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
)

// Settled is what became of one event.
type Settled struct {
	Event   event.Event
	Outcome string // one of package outcome's
	Reason  string // one of package outcome's; empty when sent
	Detail  string // dead: what was wrong, or Slack's code

	Tier       ratelimit.Tier // dropped by a limit: the tier that refused
	RetryAfter time.Duration  // dropped by a limit: when an event of its cost would fit

	Channel   string        // sent or rejected by Slack: where to
	SlackTS   string        // sent with a token: names the message
	Attempts  int           // posts that were begun, those of crashed workers included as far as they are known
	Latency   time.Duration // sent: from publication to Slack's answer
	Ambiguous bool          // an earlier attempt may have reached Slack too
	Found     bool          // sent: such an attempt was found in the channel, and no other was made

	Header  map[string][]string // the message's, as it came; not to be changed
	Decided time.Time           // when the script decided; zero: it was not asked
	Posted  time.Time           // when the last post began; zero: none was made

	delivery *delivery
}

// settle ends the way of a batch of events. It is the only place that logs them, counts them and acknowledges them, in
// this order: a line that is written twice after a crash is better than an event that nobody can account for.
func (w *Worker) settle(batch []Settled) {
	if len(batch) == 0 {
		return
	}
	lines := lineWriter{log: w.log, limits: map[ratelimit.Tier]string{}}
	for i := range batch {
		batch[i].Header = batch[i].delivery.Header
		lines.write(&batch[i])
	}
	_ = w.log.Sync() // the lines are on their way before any acknowledgement is; a broken log is no reason to stop
	crash(afterLog)
	if w.observe != nil {
		for i := range batch {
			w.observe(batch[i])
		}
	}
	deliveries := make([]*delivery, 0, len(batch))
	for i := range batch {
		if batch[i].Outcome == outcome.Dead {
			w.noteAcknowledged(w.source.terminate(batch[i].delivery, batch[i].Reason))
		} else {
			deliveries = append(deliveries, batch[i].delivery)
		}
	}
	w.noteAcknowledged(w.source.acknowledge(deliveries))
	crash(afterAck)
	if w.archive != nil {
		w.archive.add(batch)
	}
	for i := range batch {
		w.hand.release(batch[i].delivery)
	}
}

// noteAcknowledged logs an acknowledgement that could not be handed to the connection. The event comes again and is
// then a duplicate.
func (w *Worker) noteAcknowledged(err error) {
	if err != nil {
		w.log.Warn("not acknowledged", zap.Error(err))
	}
}

// lineWriter writes the lines of a batch. In a storm that is most of a worker's work, so what lines have in common is
// made once.
type lineWriter struct {
	log    *zap.Logger
	fields []zap.Field
	limits map[ratelimit.Tier]string
}

func (w *lineWriter) limit(tier ratelimit.Tier) string {
	text, known := w.limits[tier]
	if !known {
		text = tier.String()
		w.limits[tier] = text
	}
	return text
}

// write writes the event's log line. Fields that do not apply are left out.
func (w *lineWriter) write(s *Settled) {
	level, message := zapcore.InfoLevel, "notification "+s.Outcome
	if s.Outcome == outcome.Dead {
		level = zapcore.WarnLevel
	}
	entry := w.log.Check(level, message)
	if entry == nil {
		return // LOG_LEVEL is above it
	}
	fields := append(w.fields[:0],
		zap.String("event_id", s.Event.ID),
		zap.String("category", s.Event.Category),
		zap.String("subject", s.Event.Subject),
		zap.String("outcome", s.Outcome))
	if s.Reason != "" {
		fields = append(fields, zap.String("reason", s.Reason))
	}
	if s.Detail != "" {
		fields = append(fields, zap.String("detail", s.Detail))
	}
	if s.Tier.Count > 0 {
		fields = append(fields, zap.String("limit", w.limit(s.Tier)), zap.Float64("retry_after_s", s.RetryAfter.Seconds()))
	}
	if s.Channel != "" {
		fields = append(fields, zap.String("channel", s.Channel))
	}
	if s.SlackTS != "" {
		fields = append(fields, zap.String("slack_ts", s.SlackTS))
	}
	if s.Attempts > 0 {
		fields = append(fields, zap.Int("attempts", s.Attempts))
	}
	if s.Outcome == outcome.Sent {
		fields = append(fields, zap.Float64("latency_ms", float64(s.Latency.Microseconds())/1000))
	}
	if s.Ambiguous {
		fields = append(fields, zap.Bool("ambiguous", true))
	}
	if s.Found {
		fields = append(fields, zap.Bool("found_in_channel", true))
	}
	if s.delivery.redelivered {
		fields = append(fields, zap.Bool("redelivered", true))
	}
	if s.delivery.streamSeq > 0 {
		fields = append(fields, zap.Uint64("stream_seq", s.delivery.streamSeq))
	}
	entry.Write(fields...)
	w.fields = fields
}
