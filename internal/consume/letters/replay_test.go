package letters_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"notifier/internal/consume/letters"
	"notifier/internal/event"
	"notifier/test/kit"
)

// The event returns as its publisher sent it, except that another header carries the ID.
func TestReplay(t *testing.T) {
	d := newFixture(t)
	d.letter("e-1", "data of it", "ce-specversion", "1.0", "ce-id", "c-1", "ce-source", "/s%20x", "ce-type", "t",
		"X-Two", "one", "X-Two", "two", "x-lower", "ü \x1b[2J", "Content-Type", "text/plain", "Empty", "",
		"Status", "503", "notifier-detail", "forged", "Notifier-Source", "/s x")
	stored := d.stored("NOTIFY_DEAD")[0].Time
	kit.Check(t, d.replay())
	back := d.stored("NOTIFY")[0]
	want := nats.Header{
		"Notifier-Event-Id": {"e-1"}, "Notifier-Source": {"/s x"},
		"Nats-Msg-Id":    {fmt.Sprintf("replay.1.%d", stored.UnixNano())},
		"ce-specversion": {"1.0"}, "ce-id": {"c-1"},
		"ce-source": {"/s%20x"}, "ce-type": {"t"}, "X-Two": {"one", "two"},
		"x-lower": {"ü \x1b[2J"}, "Content-Type": {"text/plain"}, "Empty": {""}, "Status": {"503"},
	}
	if diff := cmp.Diff(want, back.Header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if back.Subject != "notify.errors" || string(back.Data) != "data of it" {
		t.Errorf("%s %q", back.Subject, back.Data)
	}
	if n := len(d.stored("NOTIFY_DEAD")); n != 0 {
		t.Errorf("%d letters are left", n)
	}
	pattern, err := event.ParsePattern("notify.>")
	kit.Check(t, err)
	e, rejection := event.Decode(event.Message{
		Subject: back.Subject, Header: back.Header, Data: back.Data, FallbackID: "x", Published: back.Time,
	}, event.Rules{Pattern: pattern, MaxBytes: 100})
	if rejection != nil || e.ID != "e-1" || e.Source != "/s x" || e.Text != "data of it" {
		t.Errorf("%+v, %v; expected the event e-1", e, rejection)
	}
}

// A replay repeated after a crash, or run twice at once, stores one event.
func TestRepeatedReplayStoresOneEvent(t *testing.T) {
	d := newFixture(t)
	d.letter("e-1", "{")
	letter := d.all()[0]
	s := d.open()
	message := nats.NewMsg("notify.errors") // published by a replay that crashed
	message.Header.Set("Nats-Msg-Id", fmt.Sprintf("replay.1.%d", d.stored("NOTIFY_DEAD")[0].Time.UnixNano()))
	_, err := d.js.PublishMsg(t.Context(), message)
	kit.Check(t, err)
	for range 2 { // the second finds no letter to delete
		kit.Check(t, s.Replay(t.Context(), "notify-dead", letter))
	}
	if n := len(d.stored("NOTIFY")); n != 1 {
		t.Errorf("%d events, expected one", n)
	}
	if n := len(d.all()); n != 0 {
		t.Errorf("%d letters are left", n)
	}
}

// A letter is deleted only after a stream has stored its event.
func TestFailedReplayKeepsItsLetter(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(d *fixture)
		want    string
	}{
		"no stream": {
			func(d *fixture) { kit.Check(d.T, d.js.DeleteStream(d.Context(), "NOTIFY")) },
			`no stream stores notify.errors, or NOTIFY has no leader now; start "notifier serve", which creates the stream, or replay again`,
		},
		"a service that is no stream": {func(d *fixture) {
			kit.Check(d.T, d.js.DeleteStream(d.Context(), "NOTIFY"))
			_, err := d.connection.Subscribe("notify.>", func(m *nats.Msg) { _ = m.Respond([]byte("thank you")) })
			kit.Check(d.T, err)
		}, "invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFixture(t)
			d.letter("e-1", "{}")
			test.prepare(d)
			err := d.replay()
			if failed := (*letters.LetterError)(nil); !errors.As(err, &failed) || failed.Permanent || !strings.Contains(failed.Why, test.want) {
				t.Errorf("%v, expected a LetterError with %q", err, test.want)
			}
			if n := len(d.all()); n != 1 {
				t.Errorf("%d letters, expected it to stay", n)
			}
		})
	}
}

// Nothing is published to a subject outside NATS_SUBJECT.
func TestUnreplayableLettersStay(t *testing.T) {
	d := newFixture(t)
	why := map[uint64]string{}
	add := func(want string, headers ...string) { why[d.letter(want, "{", headers...)] = want }
	add("it was shortened: 1 of the payload's 9000 bytes are kept", "Notifier-Shortened", "9000")
	add("it does not name its subject (Notifier-Subject)", "Notifier-Subject", "")
	for _, subject := range []string{
		"notify.*", "notify.a.>", "notify.a b", "$JS.API.STREAM.DELETE.NOTIFY", "notify..a",
		"notify." + strings.Repeat("x", 3000),
	} {
		add(fmt.Sprintf("its subject %.80q cannot be published to", subject), "Notifier-Subject", subject)
	}
	add(`it is not a dead letter: its Notifier-Reason is "because"`, "Notifier-Reason", "because")
	add("it is not a dead letter: it has no Notifier-Time", "Notifier-Time", "")
	for _, subject := range []string{"other.errors", "notify-dead.errors"} {
		add(fmt.Sprintf(`its subject %q does not match NATS_SUBJECT "notify.>"`, subject), "Notifier-Subject", subject)
	}
	s := d.open()
	for _, letter := range d.all() {
		err := s.Replay(t.Context(), "notify-dead", letter)
		left := (*letters.LetterError)(nil)
		if !errors.As(err, &left) || !left.Permanent || left.Why != why[letter.Record.LetterSeq] {
			t.Errorf("letter %d: %v, expected %q", letter.Record.LetterSeq, err, why[letter.Record.LetterSeq])
		}
	}
	if n := len(d.all()); n != len(why) {
		t.Errorf("%d letters, expected all %d to stay", n, len(why))
	}
	if n := len(d.stored("NOTIFY")); n != 0 {
		t.Errorf("%d events were published", n)
	}
}
