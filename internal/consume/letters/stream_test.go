package letters_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/consume/letters"
	"notifier/internal/outcome"
	"notifier/test/kit"
)

func TestRecordsOfLetters(t *testing.T) {
	d := newFixture(t)
	d.letter("e-1", "{", "Notifier-Detail", "payload ends too early", "Notifier-Source", "https://ci.example/1")
	d.letter("e-2", "part", "Notifier-Shortened", "9000", "Notifier-Reason", "too_large", "Notifier-Subject", "notify.a.*")
	_, err := d.js.Publish(t.Context(), "notify-dead.x", []byte("no letter"))
	kit.Check(t, err)
	died := time.Date(2026, 11, 20, 4, 39, 1, 5e8, time.UTC)
	want := []outcome.Record{
		{
			LetterSeq: 1, Time: died, Category: "errors", Outcome: "dead", Reason: "malformed", Subject: "notify.errors",
			Detail: "payload ends too early", Source: "https://ci.example/1", EventID: "e-1", StreamSeq: 17,
		},
		{
			LetterSeq: 2, Time: died, Category: "a.*", Outcome: "dead", Reason: "too_large", Subject: "notify.a.*",
			EventID: "e-2", StreamSeq: 17,
		},
		{LetterSeq: 3, Time: d.stored("NOTIFY_DEAD")[2].Time, Outcome: "dead"},
	}
	if diff := cmp.Diff(want, d.records()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i, letter := range d.all() {
		if diff := cmp.Diff(want[i], letter.Record); diff != "" {
			t.Errorf("read by itself (-want +got):\n%s", diff)
		}
		if whole, shortened := letter.Shortened(); shortened != (i == 1) || shortened && whole != 9000 {
			t.Errorf("letter %d: %d, %t", i+1, whole, shortened)
		}
	}
}

// Older versions stored letters that look like status messages of the server. Such letters must not hide
// others.
func TestHostileLettersAreReadLikeOthers(t *testing.T) {
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"as workers make it": func(*jetstream.StreamConfig) {},
		"direct reads":       func(c *jetstream.StreamConfig) { c.AllowDirect = true },
	} {
		t.Run(name, func(t *testing.T) {
			d := newFixture(t, change)
			var want []string
			for _, status := range []string{"404", "409", "100", "?"} {
				for _, payload := range []string{"", "{"} {
					id := status + payload
					d.letter(id, payload, "Status", status, "Description", "No Messages",
						"Nats-Sequence", "1", "Nats-Subject", "x", "Nats-Stream", "y")
					want = append(want, id)
				}
			}
			d.letter("last", "{")
			want = append(want, "last")
			var got []string
			for _, record := range d.records() {
				got = append(got, record.EventID)
			}
			if !slices.Equal(want, got) {
				t.Errorf("%v, expected %v", got, want)
			}
			s := d.open()
			for _, letter := range d.all() {
				kit.Check(t, s.Replay(t.Context(), "notify-dead", letter))
			}
			if n := len(d.stored("NOTIFY")); n != len(want) {
				t.Errorf("%d events are back, expected %d", n, len(want))
			}
		})
	}
}

// A publisher of v0.2.0 could cause hundreds of such letters. Each reads past them without a pause at each.
func TestManyHostileLettersAreReadQuickly(t *testing.T) {
	d := newFixture(t)
	const count = 1500
	for i := range count {
		letter := nats.NewMsg("notify-dead.errors")
		if i%3 == 0 || i >= count/2 && i%2 == 0 {
			letter.Header.Set("Status", "100")
		}
		kit.Check(t, d.connection.PublishMsg(letter))
	}
	kit.Eventually(t, "all are stored", func() bool {
		stream, err := d.js.Stream(t.Context(), "NOTIFY_DEAD")
		return err == nil && stream.CachedInfo().State.Msgs == count
	})
	consumers, err := d.connection.SubscribeSync("$JS.API.CONSUMER.CREATE.>")
	kit.Check(t, err)
	if n := len(d.records()); n != count {
		t.Errorf("%d letters, expected %d", n, count)
	}
	kit.Check(t, d.connection.Flush())
	if n, _, err := consumers.Pending(); err != nil || n > 2*count/50 {
		t.Errorf("%d consumers, %v; expected a few", n, err)
	}
}

// Anyone who may publish to the stream can store headers that no client can read.
func TestUnreadableHeaders(t *testing.T) {
	d := newFixture(t)
	d.letter("first", "{")
	d.raw("NATS/1.0\r\nno header at all\r\n\r\n")
	d.letter("status", "", "Status", "404")
	d.raw("NATS/1.0\r\nno header at all\r\n\r\n")
	d.letter("last", "{")
	var got []string
	for _, record := range d.records() {
		got = append(got, record.EventID)
	}
	if want := []string{"first", "", "status", "", "last"}; !slices.Equal(want, got) {
		t.Errorf("%q, expected %q", got, want)
	}
	_, err := d.open().Get(t.Context(), 2)
	if left := (*letters.LetterError)(nil); !errors.As(err, &left) || !left.Permanent {
		t.Errorf("%v, expected that it is no letter", err)
	}
}

// Each stops at the last letter stored before Open. Otherwise a replay could meet its own events again.
func TestEachSeesNoLaterLetters(t *testing.T) {
	d := newFixture(t)
	for i := range 3 {
		d.letter(fmt.Sprint(i), "{")
	}
	s := d.open()
	d.letter("before Each", "{")
	var seen []uint64
	kit.Check(t, s.Each(t.Context(), func(r outcome.Record) error {
		seen = append(seen, r.LetterSeq)
		d.letter(fmt.Sprint("during Each ", r.LetterSeq), "{")
		return nil
	}))
	if want := []uint64{1, 2, 3}; !slices.Equal(want, seen) {
		t.Errorf("letters %v, expected %v", seen, want)
	}
}

// If letters cannot be deleted, each run would replay them again.
func TestUndeletableLettersAreNotReplayed(t *testing.T) {
	d := newFixture(t, func(c *jetstream.StreamConfig) { c.DenyDelete = true })
	d.letter("e-1", "{")
	err := d.replay()
	if err == nil || !strings.Contains(err.Error(), "stream NOTIFY_DEAD does not allow messages to be deleted") {
		t.Errorf("%v, expected that none can be deleted", err)
	}
	if n := len(d.stored("NOTIFY")); n != 0 {
		t.Errorf("%d events were published", n)
	}
}

// Each returns every letter once and in order, whatever gaps deletions leave.
func TestEachSeesEveryLetterInOrder(t *testing.T) {
	d := newFixture(t)
	for i := range 300 {
		d.letter(fmt.Sprint(i), "{")
	}
	stream, err := d.js.Stream(t.Context(), "NOTIFY_DEAD")
	kit.Check(t, err)
	remove := func(from, to uint64) {
		for seq := from; seq <= to; seq++ {
			kit.Check(t, stream.DeleteMsg(t.Context(), seq))
		}
	}
	gaps := []func(){
		func() { remove(1, 5) },                            // the oldest
		func() { remove(10, 10); remove(12, 14) },          // small gaps
		func() { remove(100, 180) },                        // a long gap
		func() { remove(290, 300) },                        // the newest
		func() { kit.Check(t, stream.Purge(t.Context())) }, // all
	}
	for i, gap := range gaps {
		gap()
		var want []uint64
		for _, message := range d.stored("NOTIFY_DEAD") {
			want = append(want, message.Sequence)
		}
		var got []uint64
		for _, record := range d.records() {
			got = append(got, record.LetterSeq)
		}
		if !slices.Equal(want, got) {
			t.Errorf("after gap %d: %v, expected %v", i, got, want)
		}
	}
}

func TestEachEndsWithAnError(t *testing.T) {
	d := newFixture(t)
	for i := range 10 {
		d.letter(fmt.Sprint(i), "{")
	}
	s, letter, n := d.open(), d.all()[0], 0
	broken := errors.New("broken")
	err := s.Each(t.Context(), func(outcome.Record) error {
		if n++; n == 3 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) || n != 3 {
		t.Errorf("%v after %d letters, expected the error of the third", err, n)
	}
	d.server.Stop()
	if err := s.Each(t.Context(), func(outcome.Record) error { return nil }); err == nil {
		t.Error("no error without a server")
	}
	err = s.Replay(t.Context(), "notify-dead", letter)
	if failed := (*letters.LetterError)(nil); err == nil || errors.As(err, &failed) {
		t.Errorf("%v, expected an error that concerns all letters", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Each(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, expected that it was cancelled", err)
	}
}

// A stream may hold gigabytes of payloads.
func TestEachReadsNoPayloads(t *testing.T) {
	d := newFixture(t)
	const count, size = 100, 50_000
	for i := range count {
		d.letter(fmt.Sprint(i), strings.Repeat("x", size))
	}
	s, before := d.open(), d.connection.Stats().InBytes
	n := 0
	kit.Check(t, s.Each(t.Context(), func(outcome.Record) error { n++; return nil }))
	if read := d.connection.Stats().InBytes - before; n != count || read > count*size/10 {
		t.Errorf("%d letters in %d bytes, expected %d without payloads", n, read, count)
	}
}
