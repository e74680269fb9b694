package recent_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/consume/wait"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/test/kit"
)

// A record has what was known of the event, and is found by its id, its category and its outcome.
func TestAnOutcomeIsRecorded(t *testing.T) {
	t.Parallel()
	b := start(t)
	until := time.Now().UTC().Add(time.Hour)
	whole := recent.Outcome{
		Time: time.Now().UTC(), EventID: "deploy-1", Category: "deploys.eu", Source: "ci", Outcome: outcome.Dropped, Reason: outcome.Muted, Detail: "d",
		Limit: "10/30m", RetryAfter: 1.5, AtLeast: true, AboveLimit: true, Mute: "deploys.*", MutedUntil: &until, MutedBy: "me@host",
		Channel: "C1", SlackTS: "1.2", Attempts: 3, Ambiguous: true, NoLetter: true, LetterSeq: 7, Subject: "notify.deploys.eu", StreamSeq: 17, Worker: "host-1",
	}
	b.add(whole)
	b.add(outcomeOf("errors", outcome.Sent, "", "e-1"))
	b.add(outcomeOf("errors", outcome.Dead, outcome.Malformed, "e-2"))
	all := b.eventually(t, recent.Filter{}, 3)
	whole.Seq = 1
	if diff := cmp.Diff(whole, all[2]); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for filter, want := range map[recent.Filter]string{
		{Category: "errors"}: "e-2 e-1", {Outcome: outcome.Sent}: "e-1", {EventID: "e-2"}: "e-2", {EventID: "e-"}: "", {EventID: "e-22"}: "",
		{Category: "deploys", EventID: "deploy-1"}: "", {Limit: 2}: "e-2 e-1", {Since: time.Now().Add(time.Minute)}: "",
		{Category: "errors", Since: time.Now().Add(-time.Hour)}: "e-2 e-1", {Category: "deploys.>"}: "",
	} {
		var ids []string
		for _, o := range b.list(t, filter).Outcomes {
			ids = append(ids, o.EventID)
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("%+v selects %q, expected %q", filter, got, want)
		}
	}
	stream, err := b.js.Stream(t.Context(), "NOTIFY_EVENTS")
	kit.Check(t, err)
	c := stream.CachedInfo().Config
	if c.MaxAge != 24*time.Hour || c.MaxMsgsPerSubject != 1000 || c.MaxBytes != 64<<20 || c.Discard != jetstream.DiscardOld || c.Storage != jetstream.FileStorage {
		t.Errorf("the stream: %+v", c)
	}
}

// Ten thousand outcomes of one category take no room from those of others, and all of them are accounted for.
func TestAStormDisplacesNothing(t *testing.T) {
	t.Parallel()
	b := start(t)
	const storm = 10_000
	for i := range storm {
		b.add(outcomeOf("noisy", outcome.Dropped, outcome.Category, fmt.Sprint("n-", i)))
		if i%1000 == 0 {
			b.add(outcomeOf("rare", outcome.Dead, outcome.Malformed, fmt.Sprint("r-", i)))
		}
	}
	b.eventually(t, recent.Filter{Category: "rare"}, 10)
	// the last of a storm is recorded when there is room, with the number of those before
	kit.EventuallyNil(t, func() error {
		noisy := b.list(t, recent.Filter{Category: "noisy", Limit: 1000}).Outcomes
		total := uint64(len(noisy))
		for _, o := range noisy {
			total += o.LeftOut
		}
		if total != storm || noisy[0].EventID != "n-9999" {
			return fmt.Errorf("%d of %d are accounted for in %d records, the last is %s", total, storm, len(noisy), noisy[0].EventID)
		}
		if recorded := storm - b.recorder.LeftOut(); recorded != uint64(len(noisy)) {
			return fmt.Errorf("%d were left out as counted, %d recorded", b.recorder.LeftOut(), len(noisy))
		}
		return nil
	})
}

// An idle recorder sleeps. What is left out then wakes it, and is recorded when there is room, also while
// others keep it busy.
func TestWhatIsLeftOutWakesARecorder(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.add(outcomeOf("first", outcome.Sent, "", "f"))
	b.eventually(t, recent.Filter{Category: "first"}, 1) // and now it has nothing to do
	for i := range 30 {
		b.add(outcomeOf("quiet", outcome.Sent, "", fmt.Sprint("q-", i)))
	}
	lastIs := func(category, id string) func() error {
		return func() error {
			found := b.list(t, recent.Filter{Category: category, Limit: 100}).Outcomes
			if len(found) == 0 || found[0].EventID != id {
				return fmt.Errorf("%d outcomes of %s, %v, expected the last one to be %s", len(found), category, found, id)
			}
			return nil
		}
	}
	kit.EventuallyNil(t, lastIs("quiet", "q-29"))
	b.add(outcomeOf("quiet", outcome.Sent, "", "q-30")) // there is no room, and nothing else wakes it
	kit.EventuallyNil(t, lastIs("quiet", "q-30"))

	for i := range 30 {
		b.add(outcomeOf("busy", outcome.Sent, "", fmt.Sprint("b-", i)))
	}
	others, end := context.WithCancel(t.Context())
	var recording sync.WaitGroup
	recording.Go(func() {
		for n := 0; wait.For(others, 20*time.Millisecond); n++ {
			b.add(outcomeOf(fmt.Sprint("steady-", n%100), outcome.Sent, "", fmt.Sprint("s-", n)))
		}
	})
	defer recording.Wait()
	defer end()
	kit.EventuallyNil(t, lastIs("busy", "b-29"))
}

// A server that is unavailable keeps nobody waiting, and what is recorded meanwhile is there afterwards.
func TestARestartOfNATS(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.add(outcomeOf("errors", outcome.Sent, "", "before"))
	b.eventually(t, recent.Filter{}, 1)
	b.server.Stop()
	b.add(outcomeOf("errors", outcome.Sent, "", "meanwhile"))
	begun := time.Now()
	for i := range 100_000 {
		b.add(outcomeOf(fmt.Sprint("c", i%5000), outcome.Dropped, outcome.Global, "x"))
	}
	if took := time.Since(begun); took > 20*time.Second { // about 0.1 s on a quiet machine
		t.Errorf("100,000 outcomes took %s", took)
	}
	kit.Check(t, b.server.Start())
	b.eventually(t, recent.Filter{EventID: "meanwhile", Category: "errors"}, 1)
	if n := b.logs.Len(); n > 0 {
		t.Errorf("%d lines are logged for a connection that others report: %v", n, b.logs.All())
	}
}

// A record whose acknowledgement is lost with the connection is stored later, and the connection's loss is
// logged elsewhere.
func TestALostConnectionIsNotAFailure(t *testing.T) {
	t.Parallel()
	b := start(t)
	kit.EventuallyNil(t, func() error { return b.js.DeleteStream(t.Context(), b.place.Stream) })
	silent, err := nats.Connect(b.server.URL(), nats.NoReconnect())
	kit.Check(t, err)
	defer silent.Close()
	published, err := silent.SubscribeSync("notify-events.>") // takes records and acknowledges none
	kit.Check(t, err)
	kit.Check(t, silent.Flush())
	b.add(outcomeOf("errors", outcome.Sent, "", "e-1"))
	_, err = published.NextMsg(kit.Patience)
	kit.Check(t, err)
	b.server.Stop()
	kit.Check(t, b.server.Start())
	b.eventually(t, recent.Filter{}, 1)
	if n := b.logs.Len(); n > 0 {
		t.Errorf("%d lines: %v", n, b.logs.All())
	}
}

// A stream of that name which takes other subjects is left alone, and so is another stream that takes ours.
func TestAnotherStreamIsInTheWay(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]jetstream.StreamConfig{
		"of the name":  {Name: "NOTIFY_EVENTS", Subjects: []string{"other.>"}},
		"of the topic": {Name: "OTHER", Subjects: []string{"notify-events.>"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			kit.EventuallyNil(t, func() error { return b.js.DeleteStream(t.Context(), b.place.Stream) })
			b.stop()
			// with its last stream the server removes the store's directories, a moment later
			kit.EventuallyNil(t, func() error {
				_, err := b.js.CreateStream(t.Context(), config)
				return err
			})
			b.record(t, b.server.URL())
			b.add(outcomeOf("errors", outcome.Sent, "", "e-1"))
			kit.Eventually(t, "it is said", func() bool { return b.logs.FilterMessage("outcomes are not recorded").Len() > 0 })
			kit.Eventually(t, "it is given up", func() bool { return b.recorder.LeftOut() == 1 })
			if n := b.logs.FilterMessage("outcomes are not recorded").Len(); n != 1 {
				t.Errorf("it is said %d times", n)
			}
			stream, err := b.js.Stream(t.Context(), config.Name)
			kit.Check(t, err)
			if n := stream.CachedInfo().State.Msgs; n != 0 {
				t.Errorf("%d messages in that stream", n)
			}
			kit.Check(t, b.js.DeleteStream(t.Context(), config.Name))
			b.add(outcomeOf("errors", outcome.Sent, "", "e-2"))
			kit.Eventually(t, "it goes on without a restart", func() bool { return b.logs.FilterMessage("outcomes are recorded again").Len() == 1 })
			if o := b.eventually(t, recent.Filter{}, 1)[0]; o.EventID != "e-2" || o.LeftOut != 1 {
				t.Errorf("%+v, expected e-2 and that one was left out", o)
			}
		})
	}
}

// What cannot be recorded at the end of a worker does not keep it.
func TestTheEndOfAWorker(t *testing.T) {
	t.Parallel()
	b := start(t)
	for i := range 10 {
		b.add(outcomeOf("errors", outcome.Sent, "", fmt.Sprint(i)))
	}
	b.stop()
	if n := len(b.list(t, recent.Filter{}).Outcomes); n != 10 {
		t.Errorf("%d of 10 are recorded", n)
	}
	b.record(t, b.server.URL())
	b.server.Stop()
	b.add(outcomeOf("errors", outcome.Sent, "", "late"))
	begun := time.Now()
	b.stop()
	if took := time.Since(begun); took > kit.Patience/2 || b.recorder.LeftOut() != 1 {
		t.Errorf("the end took %s, %d left out", took, b.recorder.LeftOut())
	}
}

// Outcomes have no place where workers would read them as events.
func TestOutcomesAreNotEvents(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]bool{"notify.>": true, "notify.*": true, "*.errors.>": false, "alerts.*.x": true, ">": false, "*.*": false, "notify-events.>": false, "*.>": false} {
		pattern, err := event.ParsePattern(subject)
		kit.Check(t, err)
		if _, err := recent.NewPlace("NOTIFY", pattern); (err == nil) != want {
			t.Errorf("%s: %v", subject, err)
		}
	}
}
