package consume

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"notifier/internal/consume/result"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/steering"
	"notifier/internal/term"
)

// lineWriter writes the log lines of a batch. In a storm that is most of a worker's work, and most lines
// differ in little: the fields that lines of a kind share are encoded once.
type lineWriter struct {
	log   *zap.Logger
	group func(category string) string // as Settings.Group
	kinds map[lineKind]*zap.Logger     // with the fields of a kind
}

// lineKind is what lines have to have in common to share fields.
type lineKind struct {
	result.Kind
	subject        string
	tier           ratelimit.Tier
	retryAfter     time.Duration
	atLeast, never bool
	reserved       int
	mute           *steering.Order
}

func newLineWriter(log *zap.Logger, group func(string) string) *lineWriter {
	at := batchClock{time.Now()} // the lines of a batch have one time
	return &lineWriter{
		log: log.WithOptions(zap.WithClock(at)), group: group, kinds: map[lineKind]*zap.Logger{},
	}
}

// batchClock stands still.
type batchClock struct{ now time.Time }

func (c batchClock) Now() time.Time { return c.now }

func (batchClock) NewTicker(d time.Duration) *time.Ticker { return time.NewTicker(d) }

// write writes the event's log line. Fields that do not apply are left out.
func (w *lineWriter) write(s *result.Result) {
	entry := w.ofKind(s).Check(headline(s.Outcome))
	if entry == nil {
		return // the level of this log is above it
	}
	var room [8]zap.Field
	fields := append(room[:0], zap.String("event_id", s.Event.ID))
	if s.Detail != "" {
		fields = append(fields, zap.String("detail", s.Detail))
	}
	if s.NoLetter {
		fields = append(fields, zap.Bool("letter", false))
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
	if s.Delivery.Redelivered {
		fields = append(fields, zap.Bool("redelivered", true))
	}
	if s.Delivery.Seq > 0 {
		fields = append(fields, zap.Uint64("stream_seq", s.Delivery.Seq))
	}
	entry.Write(fields...)
}

// ofKind is the log with the fields that the event's line shares with others of its kind.
func (w *lineWriter) ofKind(s *result.Result) *zap.Logger {
	kind := lineKind{
		Kind: s.Kind(), subject: s.Event.Subject, tier: s.Tier, retryAfter: s.RetryAfter,
		atLeast: s.AtLeast, never: s.Never, reserved: s.Reserved, mute: s.Mute,
	}
	log, known := w.kinds[kind]
	if !known {
		log = w.log.With(w.sharedFields(kind)...)
		w.kinds[kind] = log
	}
	return log
}

func (w *lineWriter) sharedFields(kind lineKind) []zap.Field {
	fields := []zap.Field{
		zap.String("category", kind.Category),
		zap.String("subject", kind.subject),
		zap.String("outcome", kind.Outcome),
	}
	if kind.Source != "" {
		fields = append(fields, zap.String("source", kind.Source))
	}
	if w.group != nil {
		if group := w.group(kind.Category); group != "" {
			fields = append(fields, zap.String("group", group))
		}
	}
	if kind.Reason != "" {
		fields = append(fields, zap.String("reason", kind.Reason))
	}
	if kind.tier.Count > 0 {
		fields = append(fields, zap.Stringer("limit", kind.tier))
		if kind.never {
			fields = append(fields, zap.Bool("above_limit", true))
		} else {
			fields = append(fields, zap.Float64("retry_after_s", term.Seconds(kind.retryAfter)))
		}
		if kind.atLeast {
			fields = append(fields, zap.Bool("retry_after_at_least", true))
		}
	}
	if kind.mute != nil {
		fields = append(fields,
			zap.String("mute", kind.mute.Target),
			zap.Time("muted_until", kind.mute.Until),
			zap.String("muted_by", kind.mute.By))
		if kind.mute.Reason != "" {
			fields = append(fields, zap.String("mute_reason", kind.mute.Reason))
		}
	}
	if kind.reserved > 0 {
		fields = append(fields, zap.Int("reserved", kind.reserved))
	}
	return fields
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
