package feed

import (
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/event"
	"notifier/internal/term"
)

// Filters are the subjects that a consumer takes of its stream; none: all.
func Filters(consumer jetstream.ConsumerConfig) []string {
	if consumer.FilterSubject != "" {
		return []string{consumer.FilterSubject}
	}
	return consumer.FilterSubjects
}

// StreamMismatch is why a worker that reads wanted can get no event from a stream; empty: it can. What is
// mirrored, sourced or transformed cannot be judged by subjects.
func StreamMismatch(wanted string, stream jetstream.StreamConfig) string {
	overlaps := func(subject string) bool { return event.Overlap(subject, wanted) }
	if opaque(stream) || slices.ContainsFunc(stream.Subjects, overlaps) {
		return ""
	}
	return fmt.Sprintf("stream %s takes %s, and nothing of NATS_SUBJECT %s",
		stream.Name, subjectList(stream.Subjects), wanted)
}

// ConsumerMismatch is why a worker must not read a consumer: it delivers events whose subject wanted does not
// match, so that they would have no category; empty: it does not.
func ConsumerMismatch(
	wanted string, stream jetstream.StreamConfig, consumer jetstream.ConsumerConfig,
) string {
	filters, taken := Filters(consumer), stream.Subjects
	what := "takes " + term.List(filters)
	if len(filters) == 0 {
		if opaque(stream) {
			return ""
		}
		filters, what = []string{">"}, "takes everything in stream "+stream.Name+", "+subjectList(taken)
	}
	if opaque(stream) {
		taken = []string{">"}
	}
	for _, filter := range filters {
		for _, subject := range taken {
			if delivered, some := event.Common(filter, subject); some && !event.Covers(wanted, delivered) {
				return fmt.Sprintf("consumer %s %s, which is more than NATS_SUBJECT %s", consumer.Durable, what, wanted)
			}
		}
	}
	overlaps := func(filter string) bool { return event.Overlap(filter, wanted) }
	if !opaque(stream) && !slices.ContainsFunc(filters, overlaps) {
		return fmt.Sprintf("consumer %s %s, and nothing of NATS_SUBJECT %s", consumer.Durable, what, wanted)
	}
	return ""
}

// Partial reports whether none of these subjects takes all of wanted; without subjects it is not known.
func Partial(wanted string, taken []string) bool {
	return len(taken) > 0 && !slices.ContainsFunc(taken, func(s string) bool { return event.Covers(s, wanted) })
}

// opaque reports whether the subjects in a stream are not those that it takes.
func opaque(stream jetstream.StreamConfig) bool {
	return stream.Mirror != nil || len(stream.Sources) > 0 || stream.SubjectTransform != nil
}

func subjectList(subjects []string) string {
	if len(subjects) == 0 {
		return "no subjects"
	}
	return term.List(subjects)
}
