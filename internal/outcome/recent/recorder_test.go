package recent_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/test/kit"
	"notifier/test/natstest"
)

func TestARecordIsStoredWhole(t *testing.T) {
	t.Parallel()
	b := start(t)
	want := outcome.Record{
		Time: time.Now().UTC(), EventID: "deploy-1", Category: "deploys.eu", Source: "ci",
		Outcome: outcome.Dropped, Reason: outcome.Muted, Detail: "d", Group: "deploys", Limit: "10/30m",
		RetryAfter: 1.5, AtLeast: true, AboveLimit: true, Reserved: 2, Mute: "deploys.*",
		MutedUntil: time.Now().UTC(), MutedBy: "me@host", MuteReason: "noise", Age: 5, MaxAge: 4,
		Letter: new(bool), LetterSeq: 7, Channel: "C1", SlackTS: "1.2", Attempts: 3, Latency: 6.5,
		Ambiguous: true, Found: true, Redelivered: true, Subject: "notify.deploys.eu", StreamSeq: 17,
	}
	b.add(want)
	got := b.eventually(t, recent.Filter{}, 1)
	want.Seq = 1
	if diff := cmp.Diff([]outcome.Record{want}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	stream, err := b.js.Stream(t.Context(), "NOTIFY_EVENTS")
	kit.Check(t, err)
	c := stream.CachedInfo().Config
	if c.MaxAge != 24*time.Hour || c.MaxBytes != 64<<20 || c.Discard != jetstream.DiscardOld ||
		c.Storage != jetstream.FileStorage || !c.AllowDirect || !slices.Equal(c.Subjects, []string{"notify-events.>"}) {
		t.Errorf("%+v", c)
	}
	message, err := stream.GetMsg(t.Context(), 1)
	kit.Check(t, err)
	const hash = "244cf825d65c1c4e" // printf deploy-1 | sha256sum | cut -c 1-16
	if want := "notify-events." + hash + ".deploys.eu"; message.Subject != want {
		t.Errorf("subject %s, expected %s", message.Subject, want)
	}
}

// TestTheLargestRecordFits: each character takes six bytes in JSON.
func TestTheLargestRecordFits(t *testing.T) {
	t.Parallel()
	b := start(t)
	long := strings.Repeat("<", 1000)
	at := time.Now().UTC()
	b.add(outcome.Record{
		Time: at, EventID: long, Category: long, Source: long, Outcome: outcome.Dead, Reason: long, Detail: long, Group: long,
		Limit: long, RetryAfter: 1e20 / 3, AtLeast: true, AboveLimit: true, Reserved: math.MaxInt, Mute: long, MutedUntil: at,
		MutedBy: long, MuteReason: long, Age: 1e20 / 3, MaxAge: 1e20 / 3, Letter: new(bool), LetterSeq: math.MaxUint64,
		Channel: long, SlackTS: long, Attempts: math.MaxInt, Latency: 1e20 / 3, Ambiguous: true, Found: true, Redelivered: true,
		Subject: long, StreamSeq: math.MaxUint64, LeftOut: math.MaxUint64, Seq: math.MaxUint64,
	})
	b.eventually(t, recent.Filter{}, 1)
}

// TestAStormDisplacesNothing: ten thousand records of one kind take no room from another kind. When the storm
// is over, those left out are counted without another record of that kind.
func TestAStormDisplacesNothing(t *testing.T) {
	t.Parallel()
	const rounds, events = 20, 10_000
	b := start(t)
	storm := make([]outcome.Record, events/rounds)
	kind := recent.Kind{Category: "noisy", Outcome: outcome.Dropped, Reason: outcome.Category}
	for i := range storm {
		storm[i] = record("noisy", outcome.Dropped, outcome.Category, fmt.Sprint("n-", i))
	}
	made := 0
	for i := range rounds {
		b.recorder.Record(kind, len(storm), func(i int) outcome.Record {
			made++
			return storm[i]
		})
		b.add(record("rare", outcome.Dead, outcome.Malformed, fmt.Sprint("r-", i)))
		b.add(record("noisy", outcome.Sent, "", fmt.Sprint("s-", i)))
	}
	b.eventually(t, recent.Filter{Category: "rare"}, rounds)
	b.eventually(t, recent.Filter{Category: "noisy", Outcome: outcome.Sent}, rounds)
	if made < recent.Burst || made > recent.Burst+2+rounds {
		t.Errorf("%d records made, expected %d and one for each round", made, recent.Burst)
	}
	if left := b.recorder.LeftOut(); left < events-recent.Burst-2 {
		t.Errorf("%d left out, expected %d", left, events-recent.Burst)
	}
	b.counted(t, "noisy", events, events/rounds-1)
}

// TestAnEndingWorkerCountsWhatItLeftOut, although no limit allows another record yet.
func TestAnEndingWorkerCountsWhatItLeftOut(t *testing.T) {
	t.Parallel()
	b := start(t)
	kind := recent.Kind{Category: "errors", Outcome: outcome.Dropped, Reason: outcome.Category}
	b.recorder.Record(kind, 150, func(i int) outcome.Record {
		return record("errors", outcome.Dropped, outcome.Category, fmt.Sprint("n-", i))
	})
	b.recorder.EndIn(kit.Patience) // a busy machine needs more than two seconds to create the stream, too
	b.stop()
	b.counted(t, "errors", 150, 149)
	if left := b.recorder.LeftOut(); left != 49 {
		t.Errorf("%d left out, expected 49", left)
	}
}

// counted waits until the records of dropped events in a category, and the events that they count as left
// out, add up. The newest must be of event last.
func (b *bench) counted(t testing.TB, category string, events, last int) {
	t.Helper()
	filter := recent.Filter{Category: category, Outcome: outcome.Dropped, Limit: 1000}
	kit.EventuallyNil(t, func() error {
		page, err := b.reader.List(t.Context(), filter)
		if err != nil {
			return err
		}
		n, newest := len(page.Records), ""
		for _, r := range page.Records {
			n += int(r.LeftOut)
			newest = r.EventID
		}
		if want := fmt.Sprint("n-", last); n != events || newest != want {
			return fmt.Errorf("%d events up to %s, expected %d up to %s", n, newest, events, want)
		}
		return nil
	})
}

// TestKindsAreBounded: publishers choose the names of categories. Kinds beyond the bound share a limit.
func TestKindsAreBounded(t *testing.T) {
	t.Parallel()
	b := start(t)
	for i := range 5 * recent.MaxKinds {
		b.add(record(fmt.Sprint("c-", i), outcome.Dropped, outcome.Global, "e"))
	}
	const recorded = recent.MaxKinds + recent.Burst
	records := b.eventually(t, recent.Filter{Limit: 10_000}, recorded)
	if last := records[len(records)-1].Category; last != fmt.Sprint("c-", recorded-1) {
		t.Errorf("the last record is of %s", last)
	}
	if got := b.recorder.LeftOut(); got != 5*recent.MaxKinds-recorded {
		t.Errorf("%d left out, expected %d", got, 5*recent.MaxKinds-recorded)
	}
}

// TestNobodyWaitsForNATS: while the server is down, records are queued up to a bound and the rest is counted.
func TestNobodyWaitsForNATS(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.add(record("errors", outcome.Sent, "", "before"))
	b.eventually(t, recent.Filter{}, 1)
	b.server.Stop()
	begun := time.Now()
	for i := range 100_000 {
		b.add(record(fmt.Sprint("c-", i%200), outcome.Dropped, outcome.Global, "x"))
	}
	if took := time.Since(begun); took > 20*time.Second { // about 0.1 s on an idle machine
		t.Errorf("100,000 records took %s", took)
	}
	kit.Check(t, b.server.Start())
	kit.Eventually(t, "the queue is stored", func() bool {
		page, err := b.reader.List(t.Context(), recent.Filter{Limit: 10_000})
		return err == nil && uint64(len(page.Records))+b.recorder.LeftOut() == 100_001
	})
	if n := b.logs.FilterMessage("outcomes are not recorded").Len(); n > 1 {
		t.Errorf("%d lines: %v", n, b.logs.All())
	}
}

// TestRecordsDisplaceNoAcknowledgements: without a connection the client would queue records beside the
// acknowledgements of events, in a buffer that is bounded.
func TestRecordsDisplaceNoAcknowledgements(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.add(record("errors", outcome.Sent, "", "before"))
	b.eventually(t, recent.Filter{}, 1)
	b.server.Stop()
	kit.Eventually(t, "the client knows", func() bool { return !b.client.IsConnected() })
	for i := range recent.Burst / 2 {
		b.add(record("errors", outcome.Sent, "", fmt.Sprint("during-", i)))
	}
	kit.Eventually(t, "a record has failed", func() bool {
		return b.logs.FilterMessage("outcomes are not recorded").Len() == 1
	})
	if n, err := b.client.Buffered(); err != nil || n > 100 { // a ping may be among them
		t.Errorf("%d bytes are queued in the client, %v; expected no records", n, err)
	}
}

// TestPermissionsComeAndGo: each change is logged once, and needs no restart. Denied requests are repeated
// after pauses, however much there is to record.
func TestPermissionsComeAndGo(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, reading)
	b := &bench{place: place(t), js: kit.JetStream(t, g.as("all"))}
	begun := time.Now()
	b.record(t, g.as("w"))
	for i := range 100 {
		b.add(record(fmt.Sprint("c-", i), outcome.Sent, "", "e"))
	}
	kit.Eventually(t, "the request is repeated", func() bool { return b.denials.Load() >= 10 })
	if n, limit := b.denials.Load(), 2+time.Since(begun)/(20*time.Millisecond); n > int64(limit) || b.logs.Len() != 1 {
		t.Errorf("%d requests were denied in %s, lines %v", n, time.Since(begun), b.logs.All())
	}
	logged := func(message string, n int) {
		t.Helper()
		kit.Eventually(t, message, func() bool {
			b.add(record(fmt.Sprint("c-", time.Now().UnixNano()%200), outcome.Sent, "", "e"))
			return b.logs.FilterMessage(message).Len() == n
		})
	}
	for i := range 2 {
		logged("outcomes are not recorded", i+1)
		line := fmt.Sprint(b.logs.FilterMessage("outcomes are not recorded").All()[i].ContextMap())
		if !strings.Contains(line, "Permissions Violation for Publish to") || !strings.Contains(line, "docs/security.md") {
			t.Error(line)
		}
		g.allow(t, append(writing, reading)...)
		logged("outcomes are recorded again", i+1)
		g.allow(t, reading)
	}
	b.readAs(t, g.as("all"))
	if records := b.list(t, recent.Filter{}).Records; len(records) == 0 {
		t.Error("nothing is recorded")
	}
}

// TestPublishingIsEnough: a worker that may not create or look up the stream records if the stream exists,
// with whatever bounds.
func TestPublishingIsEnough(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "notify-events.>")
	b := &bench{place: place(t), js: kit.JetStream(t, g.as("all"))}
	config := b.place.Config()
	config.MaxMsgsPerSubject = 1000 // as v0.2.0 creates it
	_, err := b.js.CreateStream(t.Context(), config)
	kit.Check(t, err)
	b.record(t, g.as("w"))
	b.readAs(t, g.as("all"))
	b.add(record("errors", outcome.Sent, "", "e-1"))
	b.eventually(t, recent.Filter{}, 1)
	kit.Eventually(t, "it is logged", func() bool { // after the lookup was denied
		return b.logs.FilterMessage("outcomes are recorded again").Len() == 1
	})
}

// TestOtherStreamsAreLeftAlone: a stream of the same name with other subjects, and another stream with the same
// subjects, get no records.
func TestOtherStreamsAreLeftAlone(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]jetstream.StreamConfig{
		"same name":     {Name: "NOTIFY_EVENTS", Subjects: []string{"other.>"}},
		"same subjects": {Name: "OTHER", Subjects: []string{"notify-events.>"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startServer(t)
			_, err := b.js.CreateStream(t.Context(), config)
			kit.Check(t, err)
			b.record(t, b.server.URL())
			b.add(record("errors", outcome.Sent, "", "e-1"))
			kit.Eventually(t, "the record is given up", func() bool { return b.recorder.LeftOut() == 1 })
			if n := b.logs.FilterMessage("outcomes are not recorded").Len(); n != 1 {
				t.Errorf("%d lines", n)
			}
			stream, err := b.js.Stream(t.Context(), config.Name)
			kit.Check(t, err)
			if n := stream.CachedInfo().State.Msgs; n != 0 {
				t.Errorf("%d messages in that stream", n)
			}
			kit.Check(t, b.js.DeleteStream(t.Context(), config.Name))
			b.add(record("errors", outcome.Sent, "", "e-2"))
			if r := b.eventually(t, recent.Filter{}, 1)[0]; r.EventID != "e-2" || r.LeftOut != 1 {
				t.Errorf("%+v, expected e-2, with one left out", r)
			}
			if n := b.logs.FilterMessage("outcomes are recorded again").Len(); n != 1 {
				t.Errorf("%d lines say that it goes on", n)
			}
		})
	}
}

// TestADeletedStreamIsCreatedAgain: records that are on their way together are stored, in order.
func TestADeletedStreamIsCreatedAgain(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.add(record("errors", outcome.Sent, "", "first"))
	b.eventually(t, recent.Filter{}, 1)
	kit.Check(t, b.js.DeleteStream(t.Context(), "NOTIFY_EVENTS"))
	const n = 90
	kind := recent.Kind{Category: "errors", Outcome: outcome.Dropped, Reason: outcome.Category}
	b.recorder.Record(kind, n, func(i int) outcome.Record {
		return record("errors", outcome.Dropped, outcome.Category, fmt.Sprint(i))
	})
	for i, r := range b.eventually(t, recent.Filter{Limit: n + 1}, n) {
		if r.EventID != fmt.Sprint(i) {
			t.Errorf("%s is record %d", r.EventID, i)
		}
	}
	if left := b.recorder.LeftOut(); left != 0 {
		t.Errorf("%d left out", left)
	}
}

// TestAStoppingWorkerStoresItsQueue, but does not wait for a server that is down.
func TestAStoppingWorkerStoresItsQueue(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.add(record("errors", outcome.Sent, "", "0"))
	b.eventually(t, recent.Filter{}, 1) // the stream exists
	for i := range 9 {
		b.add(record("errors", outcome.Sent, "", fmt.Sprint(i+1)))
	}
	begun := time.Now()
	b.stop()
	inTime := time.Since(begun) < 2*time.Second // the time that a worker's end leaves for records
	if got := ids(b.list(t, recent.Filter{}).Records); inTime && got != "0 1 2 3 4 5 6 7 8 9" {
		t.Errorf("%s are recorded", got)
	}
	b.record(t, b.server.URL())
	b.server.Stop()
	b.add(record("errors", outcome.Sent, "", "late"))
	begun = time.Now()
	b.stop()
	if took := time.Since(begun); took > kit.Patience/2 || b.recorder.LeftOut() != 1 {
		t.Errorf("the end took %s, %d left out", took, b.recorder.LeftOut())
	}
}

func TestTheStreamFitsASmallAccount(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int64{10_000_000: 8 << 20, 1_500_000: recent.MinBytes} {
		limits := fmt.Sprintf("max_bytes_required: true, disk_max_stream_bytes: %d", size)
		url := natstest.WithAccount(t, limits).ClientURL()
		b := &bench{place: place(t), js: kit.JetStream(t, url)}
		b.record(t, url)
		b.add(record("errors", outcome.Sent, "", "e-1"))
		b.eventually(t, recent.Filter{}, 1)
		stream, err := b.js.Stream(t.Context(), b.place.Stream)
		kit.Check(t, err)
		if got := stream.CachedInfo().Config.MaxBytes; got != want {
			t.Errorf("%d bytes in an account with %d, expected %d", got, size, want)
		}
	}
}

// TestRecordsAreNoEvents: there is no place for records where workers would read them.
func TestRecordsAreNoEvents(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]bool{
		"notify.>": true, "alerts.*.x.y": true, ">": false, "*.*": false, "notify-events.>": false,
	} {
		pattern, err := event.ParsePattern(subject)
		kit.Check(t, err)
		if _, err := recent.NewPlace("NOTIFY", pattern); (err == nil) != want {
			t.Errorf("%s: %v", subject, err)
		}
	}
}
