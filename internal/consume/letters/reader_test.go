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
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/consume/letters"
	"notifier/internal/event"
	"notifier/test/kit"
)

func TestALetterSaysWhatBecameOfItsEvent(t *testing.T) {
	d := newFixture(t)
	d.letter("e-1", "{", "Notifier-Detail", "payload ends too early", "Notifier-Source", "https://ci.example/1")
	d.letter("e-2", "part", "Notifier-Shortened", "9000", "Notifier-Reason", "too_large", "Notifier-Subject", "notify.a.*")
	_, err := d.js.Publish(t.Context(), "notify-dead.x", []byte("no letter"))
	kit.Check(t, err)
	var got []letters.Info
	for _, letter := range d.all() {
		got = append(got, letter.Info)
	}
	want := []letters.Info{
		{
			Seq: 1, Time: time.Date(2026, 11, 20, 4, 39, 1, 5e8, time.UTC), Category: "errors", Reason: "malformed",
			Detail: "payload ends too early", Source: "https://ci.example/1", EventID: "e-1", Subject: "notify.errors", StreamSeq: 17, Bytes: 1, Shortened: -1,
		},
		{
			Seq: 2, Time: time.Date(2026, 11, 20, 4, 39, 1, 5e8, time.UTC), Category: "a.*", Reason: "too_large",
			EventID: "e-2", Subject: "notify.a.*", StreamSeq: 17, Bytes: 4, Shortened: 9000,
		},
		{Seq: 3, Time: d.stored("NOTIFY_DEAD")[2].Time, Bytes: 9, Shortened: -1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOpenWithoutAStream(t *testing.T) {
	d := newFixture(t)
	kit.Check(t, d.js.DeleteStream(t.Context(), "NOTIFY_DEAD"))
	_, err := letters.Open(t.Context(), d.connection, "NOTIFY", event.Pattern{})
	if !errors.Is(err, letters.ErrNoStream) {
		t.Errorf("%v, expected ErrNoStream", err)
	}
}

// Letters are what publishers have made of them: one must not hide the others, by posing as the server's
// word.
func TestHostileLettersAreReadLikeOthers(t *testing.T) {
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"as workers make it": func(*jetstream.StreamConfig) {},
		"direct reads":       func(c *jetstream.StreamConfig) { c.AllowDirect = true },
	} {
		t.Run(name, func(t *testing.T) {
			d := newFixture(t, change)
			for _, status := range []string{"404", "408", "409", "503", "100"} {
				d.letter("s-"+status, "", "Status", status, "Description", "No Messages", "Nats-Sequence", "1", "Nats-Subject", "x", "Nats-Stream", "y")
			}
			d.letter("last", "{")
			var got []string
			for _, letter := range d.all() {
				got = append(got, letter.EventID)
			}
			if want := []string{"s-404", "s-408", "s-409", "s-503", "s-100", "last"}; !slices.Equal(want, got) {
				t.Errorf("%v, expected %v", got, want)
			}
			s := d.open()
			for _, letter := range d.all() {
				_, err := s.Replay(t.Context(), letter)
				kit.Check(t, err)
			}
			if n := len(d.stored("NOTIFY")); n != 6 {
				t.Errorf("%d events are back, expected 6", n)
			}
		})
	}
}

// Letters that come while others are read are not seen; nor are those that leave.
func TestEachSeesWhatWasThere(t *testing.T) {
	d := newFixture(t)
	for range 3 {
		d.letter(fmt.Sprint(time.Now().UnixNano()), "{")
	}
	stream, err := d.js.Stream(t.Context(), "NOTIFY_DEAD")
	kit.Check(t, err)
	var seen []uint64
	kit.Check(t, d.open().Each(t.Context(), func(l *letters.Letter) error {
		seen = append(seen, l.Seq)
		if l.Seq == 1 {
			kit.Check(t, stream.DeleteMsg(t.Context(), 2))
		}
		d.letter(fmt.Sprint(time.Now().UnixNano()), "{")
		return nil
	}))
	if want := []uint64{1, 3}; !slices.Equal(want, seen) {
		t.Errorf("letters %v, expected %v", seen, want)
	}
}

// Nothing hangs while the server is unavailable.
func TestTheServerIsUnavailable(t *testing.T) {
	d := newFixture(t)
	d.letter("e-1", "{")
	s, letter := d.open(), d.all()[0]
	d.server.Stop()
	_, err := s.Replay(t.Context(), letter)
	if failed := (*letters.PublishError)(nil); err == nil || errors.As(err, &failed) {
		t.Errorf("%v, expected an error that concerns all letters", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Each(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, expected that it was cancelled", err)
	}
}

// A stream that does not let letters be deleted would have them put back again and again.
func TestLettersThatCannotBeDeletedStay(t *testing.T) {
	d := newFixture(t, func(c *jetstream.StreamConfig) { c.DenyDelete = true })
	d.letter("e-1", "{")
	_, err := d.putBack()
	if err == nil || !strings.Contains(err.Error(), "stream NOTIFY_DEAD does not allow messages to be deleted") {
		t.Errorf("%v, expected that none can be deleted", err)
	}
	if n := len(d.stored("NOTIFY")); n != 0 {
		t.Errorf("%d events were published", n)
	}
}
