package feed

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/event"
	"notifier/internal/term"
)

// Severity ranks a fault of a stream or consumer by its effect on a worker.
type Severity int

// The severities, from harmless to fatal.
const (
	Remark   Severity = iota // the worker does not mention it; "notifier check" does
	Risk                     // events may be lost or late: the worker logs a warning and reads
	Withhold                 // like Risk, and events do not arrive now: "notifier status" reports it
	Wait                     // the worker does not read until it is mended
	Refuse                   // like Wait, but a worker that has never read ends
)

// Fault is one reason why a worker cannot, or should not, read a stream through a consumer.
type Fault struct {
	Severity Severity
	Problem  string // begins with the name of the stream or consumer
	Advice   string // may be empty
}

// Reading describes how a worker reads.
type Reading struct {
	Subject   string // NATS_SUBJECT
	Namespace string // REDIS_NAMESPACE. If empty, any consumer fits
	Held      int    // max deliveries that one worker holds
	Stream    jetstream.StreamConfig
}

// NamespaceKey is the key of a consumer's metadata that names REDIS_NAMESPACE of its workers. Workers that
// count in another namespace would take a part of the events and send them beyond the limits of the others. A
// consumer without the key was made by an operator or by an older release, and any worker reads it.
const NamespaceKey = "notifier-redis-namespace"

// rule recognizes one fault. Its problem function completes the sentence "stream NAME ..." or "consumer NAME
// ...", and returns "" if there is no fault.
type rule[T any] struct {
	severity Severity
	problem  func(Reading, T) string
	advice   string
}

const (
	// shortAge is shorter than an outage may last: a stream that keeps events for less time loses held ones.
	shortAge = time.Hour
	// shortAckWait leaves a stalled worker too little time to report progress.
	shortAckWait = 5 * time.Second
	longAckWait  = 10 * time.Minute
	shortExpires = time.Second
)

const changeOrWait = "a worker waits until they agree: change them, or NATS_SUBJECT"

// A work queue takes no second consumer for the same subjects, so a new name does not help there.
const (
	newName     = "set NATS_CONSUMER to a new name"
	newConsumer = "delete it: a worker creates it again, and unsettled events stay in the stream"
)

// streamRules and consumerRules are the one place that judges streams and consumers. A worker and "notifier
// check" apply the same rules to the configuration that the server reports.
var streamRules = []rule[jetstream.StreamConfig]{
	{Wait, func(r Reading, s jetstream.StreamConfig) string {
		overlaps := func(subject string) bool { return event.Overlap(subject, r.Subject) }
		if opaque(s) || slices.ContainsFunc(s.Subjects, overlaps) {
			return ""
		}
		return fmt.Sprintf("takes %s, and nothing of NATS_SUBJECT %s", subjectList(s.Subjects), r.Subject)
	}, changeOrWait},
	{Refuse, func(_ Reading, s jetstream.StreamConfig) string {
		return when(s.AllowMsgCounter, "is a stream of counters: it stores numbers, not events")
	}, "set NATS_STREAM to another stream"},

	{Risk, func(r Reading, s jetstream.StreamConfig) string {
		return partial(r.Subject, []string{r.Subject}, s.Subjects, subjectList(s.Subjects))
	}, "add NATS_SUBJECT to them"},
	{Risk, func(_ Reading, s jetstream.StreamConfig) string {
		return when(s.Discard == jetstream.DiscardOld && hasBounds(s),
			"is bounded and discards old: when it is full, it deletes events that no worker has read")
	}, "set discard to new, so that publishers get an error instead"},
	{Risk, func(_ Reading, s jetstream.StreamConfig) string {
		replaces := s.MaxMsgsPerSubject > 0 && !s.DiscardNewPerSubject
		return when(replaces && s.Discard == jetstream.DiscardNew,
			"has max_msgs_per_subject %d: a newer event deletes an unread one of its subject", s.MaxMsgsPerSubject)
	}, "set max_msgs_per_subject to -1, or discard_new_per_subject to true"},
	{Risk, func(_ Reading, s jetstream.StreamConfig) string {
		return when(s.MaxAge > 0 && s.MaxAge < shortAge,
			"deletes events after %s, including those that wait during an outage", term.ShortDuration(s.MaxAge))
	}, "set max_age to an hour or more, or to 0"},
	{Risk, func(_ Reading, s jetstream.StreamConfig) string {
		return when(s.AllowMsgTTL,
			"allows TTLs: an event with a Nats-TTL header vanishes if no worker has read it by then")
	}, "publish without that header, or use a stream without allow_msg_ttl, which cannot be turned off"},
	{Risk, func(_ Reading, s jetstream.StreamConfig) string {
		return when(s.AllowRollup,
			"allows roll-ups: an event with a Nats-Rollup header deletes all earlier ones, unread ones too")
	}, "set allow_rollup_hdrs to false"},
	{Risk, func(_ Reading, s jetstream.StreamConfig) string {
		return when(s.AllowMsgSchedules,
			"allows schedules: a worker reads a schedule that NATS_SUBJECT matches as an event, and ends it")
	}, "keep schedules under subjects outside NATS_SUBJECT"},
	{Risk, func(_ Reading, s jetstream.StreamConfig) string {
		return when(s.Retention == jetstream.InterestPolicy,
			"keeps only events that a consumer waits for: deleting the consumer loses unread events")
	}, "make it a work queue, or never delete the consumer"},
	{Risk, func(_ Reading, s jetstream.StreamConfig) string {
		endless := s.Retention == jetstream.LimitsPolicy && !hasBounds(s) && s.MaxAge <= 0
		return when(endless, "keeps every event for ever, without any bound: a full disk takes no new ones")
	}, "make it a work queue, or set max_age"},
	{Risk, func(_ Reading, s jetstream.StreamConfig) string {
		return when(s.Storage == jetstream.MemoryStorage,
			"is in memory: a restart of the server loses waiting events")
	}, "use file storage"},
	{Risk, func(_ Reading, s jetstream.StreamConfig) string {
		return when(s.PersistMode == jetstream.AsyncPersistMode,
			"acknowledges events before they are written: a crash of the server loses them")
	}, "use the default persist_mode"},
	{Risk, func(_ Reading, s jetstream.StreamConfig) string {
		return when(s.NoAck, "acknowledges nothing: a publisher cannot know whether its event is stored")
	}, "set no_ack to false"},
	{Risk, func(_ Reading, s jetstream.StreamConfig) string {
		return when(s.Sealed, "is sealed: it takes no events any more")
	}, "set NATS_STREAM to another stream"},

	{Remark, func(_ Reading, s jetstream.StreamConfig) string {
		return when(s.Retention == jetstream.LimitsPolicy,
			"keeps settled events: a consumer that is created again decides them again")
	}, "never delete the consumer"},
	{Remark, func(_ Reading, s jetstream.StreamConfig) string {
		return when(opaque(s), "mirrors, sources or transforms: whether its events match NATS_SUBJECT is unknown")
	}, "publish an event, and see whether it arrives"},
}

var consumerRules = []rule[jetstream.ConsumerConfig]{
	{Refuse, func(_ Reading, c jetstream.ConsumerConfig) string {
		return when(c.DeliverSubject != "", "is a push consumer")
	}, newName},
	{Refuse, func(_ Reading, c jetstream.ConsumerConfig) string {
		return when(c.AckPolicy != jetstream.AckExplicitPolicy,
			"has the acknowledgement policy %s, with which a worker does not start", c.AckPolicy)
	}, newName},
	{Refuse, func(_ Reading, c jetstream.ConsumerConfig) string {
		return when(len(c.PriorityGroups) > 0,
			"has the priority groups %s, with which a worker does not start", term.List(c.PriorityGroups))
	}, newName},
	{Refuse, func(_ Reading, c jetstream.ConsumerConfig) string {
		return when(c.HeadersOnly, "has headers_only: a worker would get events without their payloads")
	}, "set headers_only to false, or " + newName},
	{Wait, func(r Reading, c jetstream.ConsumerConfig) string {
		return foreignSubjects(r, c)
	}, changeOrWait},
	{Wait, func(r Reading, c jetstream.ConsumerConfig) string {
		owner := c.Metadata[NamespaceKey]
		return when(owner != "" && r.Namespace != "" && owner != r.Namespace,
			"belongs to workers with REDIS_NAMESPACE %.100q, and here it is %q", owner, r.Namespace)
	}, "set NATS_STREAM and NATS_SUBJECT to others, or, if REDIS_NAMESPACE was renamed, edit the consumer: " +
		"nats consumer edit STREAM CONSUMER --metadata " + NamespaceKey + "=NAME"},

	{Withhold, func(_ Reading, c jetstream.ConsumerConfig) string {
		if c.PauseUntil == nil {
			return ""
		}
		return fmt.Sprintf("is paused until %s: no events arrive", c.PauseUntil.UTC().Format(time.RFC3339))
	}, "resume it (nats consumer resume)"},
	{Withhold, func(r Reading, c jetstream.ConsumerConfig) string {
		return partial(r.Subject, r.inStream(), filters(c), term.List(filters(c)))
	}, "add NATS_SUBJECT to its filters"},
	{Risk, func(_ Reading, c jetstream.ConsumerConfig) string {
		return when(c.MaxDeliver > 0,
			"has %s: an event that is held for long is not delivered again after so many deliveries",
			maximum("max_deliver", c.MaxDeliver))
	}, "set max_deliver to -1"},
	{Risk, func(_ Reading, c jetstream.ConsumerConfig) string {
		return when(len(c.BackOff) > 0,
			"has a backoff, which replaces ack wait: events are redelivered while they are being processed")
	}, "remove it"},
	{Risk, func(_ Reading, c jetstream.ConsumerConfig) string {
		return when(len(c.BackOff) == 0 && c.AckWait > 0 && c.AckWait < shortAckWait,
			"has ack wait %s: another worker gets the events of one that stalls for so long",
			term.ShortDuration(c.AckWait))
	}, "set ack_wait to 20s"},
	{Risk, func(r Reading, c jetstream.ConsumerConfig) string {
		return when(c.MaxAckPending > 0 && c.MaxAckPending < r.Held,
			"has %s for all workers, and one could hold %d: a slow channel can hold up all others",
			maximum("max_ack_pending", c.MaxAckPending), r.Held)
	}, "set max_ack_pending to 32768"},
	{Risk, func(_ Reading, c jetstream.ConsumerConfig) string {
		return when(c.ReplayPolicy != jetstream.ReplayInstantPolicy,
			"has replay policy %s: a backlog of an hour takes an hour to read", c.ReplayPolicy)
	}, "create one whose policy is instant"},
	{Risk, func(_ Reading, c jetstream.ConsumerConfig) string {
		return when(c.DeliverPolicy != jetstream.DeliverAllPolicy,
			"has deliver policy %s: it skips events that were stored before its start", c.DeliverPolicy)
	}, "create one whose policy is all"},
	{Risk, func(r Reading, c jetstream.ConsumerConfig) string {
		return when(c.InactiveThreshold > 0 && !workQueue(r),
			"is deleted after %s without workers: the stream does not remember which events were unread",
			term.ShortDuration(c.InactiveThreshold))
	}, "set inactive_threshold to 0"},
	{Risk, func(r Reading, c jetstream.ConsumerConfig) string {
		return when(c.MemoryStorage && r.Stream.Storage == jetstream.FileStorage && !workQueue(r),
			"is in memory: a restart of the server forgets which events were settled")
	}, "create one in file storage"},
	{Risk, func(r Reading, c jetstream.ConsumerConfig) string {
		return when(c.Replicas > 0 && c.Replicas < r.Stream.Replicas,
			"has %s, its stream %d: events wait while a single server is away",
			term.Count(c.Replicas, "replica"), r.Stream.Replicas)
	}, "set num_replicas of the consumer to 0"},

	{Remark, func(_ Reading, c jetstream.ConsumerConfig) string {
		return when(c.AckWait > longAckWait,
			"has ack wait %s: the events of a killed worker wait for so long", term.ShortDuration(c.AckWait))
	}, "set ack_wait to 20s"},
	{Remark, func(_ Reading, c jetstream.ConsumerConfig) string {
		return when(c.MaxWaiting > 0 && c.MaxWaiting < maxRequests,
			"allows %s over all workers; a single one makes up to %d",
			term.Count(c.MaxWaiting, "request"), maxRequests)
	}, "create one with max_waiting 512"},
	{Remark, func(_ Reading, c jetstream.ConsumerConfig) string {
		return when(c.MaxRequestExpires > 0 && c.MaxRequestExpires < shortExpires,
			"has max_expires %s: idle workers request events that often", c.MaxRequestExpires)
	}, "set max_expires to 30s or more"},
}

// StreamFaults lists the faults of the stream.
func (r Reading) StreamFaults() []Fault {
	return judge(r, "stream "+r.Stream.Name, r.Stream, streamRules)
}

// ConsumerFaults lists the faults of a consumer of the stream.
func (r Reading) ConsumerFaults(consumer *jetstream.ConsumerInfo) []Fault {
	config := consumer.Config
	if !consumer.Paused { // the server's clock decides, and this machine's may differ
		config.PauseUntil = nil
	}
	return judge(r, "consumer "+consumer.Name, config, consumerRules)
}

func judge[T any](r Reading, name string, config T, rules []rule[T]) (faults []Fault) {
	for _, rule := range rules {
		problem, advice := rule.problem(r, config), rule.advice
		if problem == "" {
			continue
		}
		if workQueue(r) {
			advice = strings.Replace(advice, newName, newConsumer, 1)
		}
		faults = append(faults, Fault{rule.severity, name + " " + problem, advice})
	}
	return faults
}

func when(is bool, format string, arguments ...any) string {
	if !is {
		return ""
	}
	return fmt.Sprintf(format, arguments...)
}

func hasBounds(s jetstream.StreamConfig) bool {
	return s.MaxMsgs > 0 || s.MaxBytes > 0 || s.MaxMsgsPerSubject > 0
}

func workQueue(r Reading) bool { return r.Stream.Retention == jetstream.WorkQueuePolicy }

// Withheld returns the worst fault by which the consumer delivers none of the events, or not all of them.
// found is false if it delivers all. An operator can change a consumer while workers read it.
func (r Reading) Withheld(consumer *jetstream.ConsumerInfo) (worst Fault, none, found bool) {
	for _, fault := range r.ConsumerFaults(consumer) {
		if fault.Severity >= Withhold && (!found || fault.Severity > worst.Severity) {
			worst, found = fault, true
		}
	}
	taken := filters(consumer.Config)
	overlaps := func(filter string) bool { return event.Overlap(filter, r.Subject) }
	none = consumer.Paused || len(taken) > 0 && !slices.ContainsFunc(taken, overlaps)
	return worst, found && none, found
}

func maximum(name string, n int) string {
	if n <= 0 {
		return "no " + name
	}
	return fmt.Sprintf("%s %d", name, n)
}

// foreignSubjects reports that a consumer delivers events that NATS_SUBJECT does not match, which would have
// no category, or only such events.
func foreignSubjects(r Reading, c jetstream.ConsumerConfig) string {
	wanted, taken := r.Subject, r.Stream.Subjects
	chosen := filters(c)
	what := "takes " + term.List(chosen)
	if len(chosen) == 0 {
		if opaque(r.Stream) {
			return ""
		}
		chosen, what = []string{">"}, "takes everything in stream "+r.Stream.Name+", "+subjectList(taken)
	}
	if opaque(r.Stream) {
		taken = []string{">"}
	}
	for _, filter := range chosen {
		for _, subject := range taken {
			if delivered, some := event.Common(filter, subject); some && !event.Covers(wanted, delivered) {
				return fmt.Sprintf("%s, which is more than NATS_SUBJECT %s", what, wanted)
			}
		}
	}
	overlaps := func(filter string) bool { return event.Overlap(filter, wanted) }
	if !opaque(r.Stream) && !slices.ContainsFunc(chosen, overlaps) {
		return fmt.Sprintf("%s, and nothing of NATS_SUBJECT %s", what, wanted)
	}
	return ""
}

// inStream returns the subjects of NATS_SUBJECT that the stream takes.
func (r Reading) inStream() (subjects []string) {
	if opaque(r.Stream) || len(r.Stream.Subjects) == 0 {
		return []string{r.Subject}
	}
	for _, subject := range r.Stream.Subjects {
		if common, overlap := event.Common(subject, r.Subject); overlap {
			subjects = append(subjects, common)
		}
	}
	return subjects
}

// partial reports that these subjects take a part of wanted, and not all of it. Without subjects nothing is
// known.
func partial(wanted string, parts, taken []string, list string) string {
	overlaps := func(subject string) bool { return event.Overlap(subject, wanted) }
	missing := func(part string) bool { return !coveredByAny(taken, part) }
	if !slices.ContainsFunc(taken, overlaps) || !slices.ContainsFunc(parts, missing) {
		return ""
	}
	return fmt.Sprintf("takes %s, which is not all of NATS_SUBJECT %s: events of other categories do not arrive",
		list, wanted)
}

// filters lists the subjects that a consumer takes. None means all of the stream.
func filters(c jetstream.ConsumerConfig) []string {
	if c.FilterSubject != "" {
		return []string{c.FilterSubject}
	}
	return c.FilterSubjects
}

// opaque reports whether the stream may hold subjects other than those it takes.
func opaque(s jetstream.StreamConfig) bool {
	return s.Mirror != nil || len(s.Sources) > 0 || s.SubjectTransform != nil
}

func subjectList(subjects []string) string {
	if len(subjects) == 0 {
		return "no subjects"
	}
	return term.List(subjects)
}
