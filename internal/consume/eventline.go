package consume

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"notifier/internal/consume/result"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/steering"
)

// lineWriter writes the records of a batch to the log. In a storm that is most of a worker's work, so lines of
// a kind encode their shared fields once.
type lineWriter struct {
	log   *zap.Logger
	group func(category string) string // as Settings.Group
	kinds map[lineKind]*sharedLine

	fields fieldList // of one line; reused
}

// lineKind holds the values behind the shared fields.
type lineKind struct {
	counted        result.Kind
	subject        string
	tier           ratelimit.Tier
	retryAfter     time.Duration
	atLeast, never bool
	reserved       int
	mute           *steering.Order
}

// sharedLine is the part of a line that a kind shares.
type sharedLine struct {
	log    *zap.Logger // with the fields of record
	record outcome.Record
}

func newLineWriter(log *zap.Logger, group func(string) string, now time.Time) *lineWriter {
	at := batchClock{now} // the lines of a batch have one time
	return &lineWriter{
		log: log.WithOptions(zap.WithClock(at)), group: group, kinds: map[lineKind]*sharedLine{},
	}
}

// batchClock stands still.
type batchClock struct{ now time.Time }

func (c batchClock) Now() time.Time { return c.now }

func (batchClock) NewTicker(d time.Duration) *time.Ticker { return time.NewTicker(d) }

// write sets the group of a settled event and writes its line.
func (w *lineWriter) write(r *result.Result) {
	kind := lineKind{
		counted: r.Kind(), subject: r.Event.Subject, tier: r.Tier, retryAfter: r.RetryAfter,
		atLeast: r.AtLeast, never: r.Never, reserved: r.Reserved, mute: r.Mute,
	}
	shared := w.kinds[kind]
	if shared == nil {
		shared = w.share(r)
		w.kinds[kind] = shared
	}
	r.Group = shared.record.Group
	record := shared.record
	r.Complete(&record)
	entry := shared.log.Check(headline(record.Outcome))
	if entry == nil {
		return // the level of this log is above it
	}
	w.fields = w.fields[:0]
	w.fields.addOwn(&record)
	entry.Write(w.fields...)
}

// share makes the part of the line that is the same for all results of a kind.
func (w *lineWriter) share(r *result.Result) *sharedLine {
	if w.group != nil {
		r.Group = w.group(r.Event.Category)
	}
	record := r.SharedRecord()
	var fields fieldList
	fields.addShared(&record)
	return &sharedLine{log: w.log.With(fields...), record: record}
}

// fieldList collects the fields of a line. Empty values are left out, as in the JSON of a Record.
type fieldList []zap.Field

// addShared adds the fields that depend on a lineKind alone.
func (l *fieldList) addShared(r *outcome.Record) {
	*l = append(*l,
		zap.String("category", r.Category), zap.String("subject", r.Subject), zap.String("outcome", r.Outcome))
	l.text(zap.String("source", r.Source))
	l.text(zap.String("group", r.Group))
	l.text(zap.String("reason", r.Reason))
	l.text(zap.String("limit", r.Limit))
	l.number(zap.Float64("retry_after_s", r.RetryAfter))
	l.number(zap.Bool("retry_after_at_least", r.AtLeast))
	l.number(zap.Bool("above_limit", r.AboveLimit))
	l.number(zap.Int("reserved", r.Reserved))
	l.text(zap.String("mute", r.Mute))
	if !r.MutedUntil.IsZero() {
		l.text(zap.String("muted_until", r.MutedUntil.Format(time.RFC3339Nano)))
	}
	l.text(zap.String("muted_by", r.MutedBy))
	l.text(zap.String("mute_reason", r.MuteReason))
}

// addOwn adds the other fields.
func (l *fieldList) addOwn(r *outcome.Record) {
	*l = append(*l, zap.String("event_id", r.EventID))
	l.text(zap.String("detail", r.Detail))
	l.number(zap.Float64("age_s", r.Age))
	l.number(zap.Float64("max_age_s", r.MaxAge))
	if r.Letter != nil {
		*l = append(*l, zap.Bool("letter", *r.Letter))
	}
	l.number(zap.Uint64("letter_seq", r.LetterSeq))
	l.text(zap.String("channel", r.Channel))
	l.text(zap.String("slack_ts", r.SlackTS))
	l.number(zap.Int("attempts", r.Attempts))
	l.number(zap.Float64("latency_ms", r.Latency))
	l.number(zap.Bool("ambiguous", r.Ambiguous))
	l.number(zap.Bool("found_in_channel", r.Found))
	l.number(zap.Bool("redelivered", r.Redelivered))
	l.number(zap.Uint64("stream_seq", r.StreamSeq))
}

// text adds a field with a text.
func (l *fieldList) text(f zap.Field) {
	if f.String != "" {
		*l = append(*l, f)
	}
}

// number adds a field with a number or a bool, which zap keeps as an integer that is zero for zero.
func (l *fieldList) number(f zap.Field) {
	if f.Integer != 0 {
		*l = append(*l, f)
	}
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
