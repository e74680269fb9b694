package consume_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/test/kit"
)

// letters returns all dead letters, or none if the stream does not exist.
func (s *fixture) letters() []*jetstream.RawStreamMsg {
	s.Helper()
	ctx := context.Background() // also called after the end of the test
	stream, err := s.js.Stream(ctx, deadName)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	kit.Check(s.T, err)
	var letters []*jetstream.RawStreamMsg
	state := stream.CachedInfo().State
	for seq := state.FirstSeq; seq <= state.LastSeq && state.Msgs > 0; seq++ {
		letter, err := stream.GetMsg(ctx, seq)
		kit.Check(s.T, err)
		letters = append(letters, letter)
	}
	return letters
}

// letter returns the dead letter of an event.
func (s *fixture) letter(id string) *jetstream.RawStreamMsg {
	s.Helper()
	for _, letter := range s.letters() {
		if letter.Header.Get("Notifier-Event-Id") == id {
			return letter
		}
	}
	s.Fatalf("there is no dead letter of %s", id)
	return nil
}

func TestBadEventIsDeadLetteredUncharged(t *testing.T) {
	s := newFixture(t)
	s.started(func(c *setup) { c.maxBytes, c.category = 2000, "10/30m" })
	for id, test := range map[string]struct{ category, payload, reason string }{
		"large":      {"errors", strings.Repeat("x", 2001), "too_large"},
		"empty":      {"errors", "", "malformed"},
		"unroutable": {"errors.db", `{"text":"x","channel":"C0ELSE"}`, "unroutable"},
		"costly":     {"errors", `{"text":"x","cost":11}`, "malformed"},
	} {
		began := time.Now()
		// notifier's own headers replace forged ones.
		seq := s.publish(test.category, test.payload, "Nats-Msg-Id", id, "X-Trace", "one", "X-Trace", "two",
			"x-lower", "kept", "Notifier-Reason", "sent", "Notifier-Shortened", "99", "notifier-detail", "forged")
		l := s.lineOf(id)
		letter := s.letter(id)
		s.expectLine(id, line{
			"level": "warn", "msg": "notification dead", "outcome": "dead", "reason": test.reason,
			"letter_seq": float64(letter.Sequence), "attempts": nil,
		})
		if letter.Subject != "notify-dead."+test.category || string(letter.Data) != test.payload {
			t.Errorf("%s: %q is dead-lettered to %q", id, letter.Data, letter.Subject)
		}
		header := letter.Header
		given, err := time.Parse(time.RFC3339, header.Get("Notifier-Time"))
		if err != nil || given.Before(began) || given.After(time.Now()) {
			t.Errorf("%s: Notifier-Time is %q, expected the time it was dead-lettered",
				id, header.Get("Notifier-Time"))
		}
		for _, own := range []string{"Notifier-Time", "Nats-Msg-Id"} {
			header.Del(own)
		}
		want := nats.Header{
			"Notifier-Event-Id": {id}, "Notifier-Reason": {test.reason}, "Notifier-Detail": {l["detail"].(string)},
			"Notifier-Subject": {"notify." + test.category}, "Nats-Expected-Stream": {"NOTIFY_DEAD"},
			"Notifier-Stream-Seq": {strconv.FormatUint(seq, 10)}, "X-Trace": {"one", "two"}, "x-lower": {"kept"},
		}
		if diff := cmp.Diff(want, header); diff != "" {
			t.Errorf("%s: headers (-want +got):\n%s", id, diff)
		}
	}
	s.expectNothingLeft()
	if keys := s.redis.Client(t).Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("bad events left the keys %v, expected none", keys)
	}
	if s.slack.Requests() != 0 {
		t.Errorf("%d bad events were posted", s.slack.Requests())
	}
}

// A publisher can put a wildcard in place of the category. The server stores such an event like any other, and a
// mute of its category would drop all events. No letter can be published to such a subject.
func TestInvalidCategoryIsDeadLettered(t *testing.T) {
	s := newFixture(t)
	s.started()
	for i, category := range []string{"*", "a.>", strings.Repeat("c", 129)} {
		id := fmt.Sprintf("w%d", i)
		message := nats.NewMsg("notify." + category)
		message.Header.Set("Nats-Msg-Id", id)
		message.Data = []byte("disk full")
		kit.Check(t, s.conn.PublishMsg(message))
		s.expectLine(id, line{"outcome": "dead", "reason": "malformed", "category": ""})
		if to := s.letter(id).Subject; to != "notify-dead._invalid" {
			t.Errorf("category %q is dead-lettered to %q, expected notify-dead._invalid", category, to)
		}
	}
	s.expectNothingLeft()
}

// An event may be as large as the server allows. Its letter needs more headers, so the payload is
// shortened; otherwise the server would refuse the letter for ever.
func TestLargestEventIsDeadLettered(t *testing.T) {
	s := newFixture(t)
	s.started()
	headers := []string{"Nats-Msg-Id", "largest", "X-Long", strings.Repeat("h", 3000)}
	empty := nats.NewMsg("notify.errors")
	empty.Header["Nats-Msg-Id"], empty.Header["X-Long"] = headers[1:2], headers[3:4]
	size := int(s.conn.MaxPayload()) - empty.Size() + len(empty.Subject) // Size counts the subject, MaxPayload does not
	s.publish("errors", strings.Repeat("\xff", size), headers...)
	s.lineOf("largest")
	letter := s.letter("largest")
	if shortened := letter.Header.Get("Notifier-Shortened"); shortened != strconv.Itoa(size) {
		t.Errorf("Notifier-Shortened is %q, expected the payload's %d bytes", shortened, size)
	}
	if letter.Header.Get("X-Long") != headers[3] {
		t.Error("the publisher's header is gone, expected that the payload gives way")
	}
	if len(letter.Data) < size*9/10 || len(letter.Data) >= size {
		t.Errorf("%d of %d bytes are kept, expected most and not all", len(letter.Data), size)
	}

	// Headers are limited to 64 kB. If the publisher's do not fit, the letter drops them. Decoding reads
	// ce-source.
	s.publish("errors", "{", "Nats-Msg-Id", "headers", "ce-source", strings.Repeat("h", 1<<16-100))
	s.lineOf("headers")
	if letter := s.letter("headers"); letter.Header.Get("Notifier-Reason") != "malformed" {
		t.Errorf("the letter's headers are %v", letter.Header)
	}
	s.publish("errors", "after them")
	s.settled(3)
	s.expectEachPostedOnce(1)
}

// refuseLetters creates a full dead-letter stream and returns its configuration.
func (s *fixture) refuseLetters() jetstream.StreamConfig {
	s.Helper()
	full := jetstream.StreamConfig{
		Name: deadName, Subjects: []string{"notify-dead.>"}, MaxMsgs: 1, Discard: jetstream.DiscardNew,
	}
	_, err := s.js.CreateStream(s.Context(), full)
	kit.Check(s.T, err)
	kit.Check(s.T, second(s.js.Publish(s.Context(), "notify-dead.x", []byte("in the way"))))
	return full
}

// makeRoom lets the stream of refuseLetters accept letters.
func (s *fixture) makeRoom(full jetstream.StreamConfig) {
	s.Helper()
	full.MaxMsgs = 1000
	kit.Check(s.T, second(s.js.UpdateStream(s.Context(), full)))
}

func TestDeletedDeadLetterStreamIsRecreated(t *testing.T) {
	s := newFixture(t)
	s.started()
	s.eventually("the worker has created the dead-letter stream, so it can be deleted", func() bool {
		return s.js.DeleteStream(t.Context(), deadName) == nil
	})
	s.publish("errors", "{", "Nats-Msg-Id", "bad")
	s.lineOf("bad")
	s.letter("bad")
}

// second drops the first of two results.
func second[T any](_ T, err error) error { return err }
