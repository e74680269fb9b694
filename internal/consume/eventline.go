package consume

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"notifier/internal/consume/result"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/term"
)

// lineWriter writes the log lines of a batch. In a storm that is most of a worker's work, so what the lines
// have in common is made once.
type lineWriter struct {
	log    *zap.Logger
	group  func(category string) string // as Settings.Group
	fields []zap.Field
	limits ratelimit.TierTexts
}

func newLineWriter(log *zap.Logger, group func(string) string) *lineWriter {
	at := batchClock{time.Now()} // the lines of a batch have one time
	return &lineWriter{log: log.WithOptions(zap.WithClock(at)), group: group}
}

// batchClock stands still.
type batchClock struct{ now time.Time }

func (c batchClock) Now() time.Time { return c.now }

func (batchClock) NewTicker(d time.Duration) *time.Ticker { return time.NewTicker(d) }

// write writes the event's log line. Fields that do not apply are left out.
func (w *lineWriter) write(s *result.Result) {
	entry := w.log.Check(headline(s.Outcome))
	if entry == nil {
		return // the level of this log is above it
	}
	fields := append(w.fields[:0],
		zap.String("event_id", s.Event.ID),
		zap.String("category", s.Event.Category),
		zap.String("subject", s.Event.Subject),
		zap.String("outcome", s.Outcome))
	if s.Event.Source != "" {
		fields = append(fields, zap.String("source", s.Event.Source))
	}
	if w.group != nil {
		if group := w.group(s.Event.Category); group != "" {
			fields = append(fields, zap.String("group", group))
		}
	}
	if s.Reason != "" {
		fields = append(fields, zap.String("reason", s.Reason))
	}
	if s.Detail != "" {
		fields = append(fields, zap.String("detail", s.Detail))
	}
	if s.NoLetter {
		fields = append(fields, zap.Bool("letter", false))
	}
	fields = w.addRefusal(fields, s)
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
	if s.Delivery.Redelivered {
		fields = append(fields, zap.Bool("redelivered", true))
	}
	if s.Delivery.Seq > 0 {
		fields = append(fields, zap.Uint64("stream_seq", s.Delivery.Seq))
	}
	entry.Write(fields...)
	w.fields = fields
}

// headline is the level and the message of the line for an outcome.
func headline(became string) (zapcore.Level, string) {
	switch became {
	case outcome.Sent:
		return zapcore.InfoLevel, "notification sent"
	case outcome.Dead:
		return zapcore.WarnLevel, "notification dead"
	}
	return zapcore.InfoLevel, "notification dropped"
}

// addRefusal adds the fields of what a limit has refused, or a mute.
func (w *lineWriter) addRefusal(fields []zap.Field, s *result.Result) []zap.Field {
	if s.Tier.Count > 0 {
		fields = append(fields, zap.String("limit", w.limits.Of(s.Tier)))
		if s.Never {
			fields = append(fields, zap.Bool("above_limit", true))
		} else {
			fields = append(fields, zap.Float64("retry_after_s", term.Seconds(s.RetryAfter)))
		}
		if s.AtLeast {
			fields = append(fields, zap.Bool("retry_after_at_least", true))
		}
	}
	if s.Mute != nil {
		fields = append(fields,
			zap.String("mute", s.Mute.Target),
			zap.Time("muted_until", s.Mute.Until),
			zap.String("muted_by", s.Mute.By))
		if s.Mute.Reason != "" {
			fields = append(fields, zap.String("mute_reason", s.Mute.Reason))
		}
	}
	if s.Reserved > 0 {
		fields = append(fields, zap.Int("reserved", s.Reserved))
	}
	return fields
}
