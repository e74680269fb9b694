package consume_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
)

// The stream cannot fill the server, and one category cannot evict the letters of others.
func TestTheDeadLetterStreamIsBounded(t *testing.T) {
	s := newFixture(t)
	s.started(func(c *setup) { c.deadLetterBytes = 5 << 20 })
	s.eventually("the dead-letter stream is there", func() bool {
		return second(s.js.Stream(t.Context(), deadName)) == nil
	})
	config := s.streamInfo(deadName).Config
	got := []any{config.MaxBytes, config.Discard, config.MaxMsgsPerSubject, config.MaxAge}
	want := []any{int64(5 << 20), jetstream.DiscardOld, int64(1000), 30 * 24 * time.Hour}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("max_bytes, discard, max_msgs_per_subject, max_age (-want +got):\n%s", diff)
	}
}

func TestDeadLetterStreamTooLargeForTheServer(t *testing.T) {
	s := newFixture(t)
	r := s.started(func(c *setup) { c.deadLetterBytes = 1 << 60 })
	s.eventually("the worker names the setting", func() bool {
		return strings.Contains(r.waitsFor("dead_letter"), "lower DEAD_LETTER_MAX_BYTES")
	})
	s.publish("errors", "hello")
	s.settled(1)
}

// A large event keeps only the start of its payload, to leave room for other letters.
func TestLetterKeepsTheStartOfALargePayload(t *testing.T) {
	s := newFixture(t)
	s.started(func(c *setup) { c.maxBytes = 5000 })
	payload := strings.Repeat("0123456789", 600)
	s.publish("errors", payload, "Nats-Msg-Id", "large", "X-Trace", "one")
	s.publish("errors", "{"+payload[:4998], "Nats-Msg-Id", "malformed")
	s.lineOf("large")
	s.lineOf("malformed")
	letter := s.letter("large")
	shortened := string(letter.Data) == payload[:4096] && letter.Header.Get("Notifier-Shortened") == "6000"
	if !shortened || letter.Header.Get("X-Trace") != "one" {
		t.Errorf("%d bytes with the headers %v, expected the first 4096 of 6000 bytes",
			len(letter.Data), letter.Header)
	}
	if letter := s.letter("malformed"); len(letter.Data) != 4999 || letter.Header["Notifier-Shortened"] != nil {
		t.Errorf("a malformed event has a letter of %d bytes with the headers %v, expected the whole payload",
			len(letter.Data), letter.Header)
	}
}

// The quota refills by one letter a second. Other categories and events rejected by Slack do not count
// against it.
func TestACategoryWritesSixtyLettersAMinute(t *testing.T) {
	s := newFixture(t)
	s.started()
	began := time.Now()
	for i := range 100 {
		payload := []string{"{", `{"text":"x","channel":"C0ELSE"}`}[i%2] // malformed and unroutable count together
		s.publish("errors", payload, "Nats-Msg-Id", fmt.Sprintf("bad-%d", i))
	}
	s.publish("other", "{", "Nats-Msg-Id", "other")
	s.slack.Respond(devstack.Always(devstack.Response{Code: "invalid_blocks"}))
	for i := range 70 {
		s.publish("errors", "hello", "Nats-Msg-Id", fmt.Sprintf("refused-%d", i))
	}
	lines := s.settled(171)
	got := map[string]int{}
	for _, l := range lines {
		letter, said := l["letter"]
		if said && letter != false {
			t.Errorf("line %v, expected letter only where it is false", l)
		}
		got[fmt.Sprint(l["reason"] == "slack_rejected", " without a letter ", said)]++
	}
	refilled := got["false without a letter false"] - 61
	if most := int(time.Since(began) / time.Second); refilled < 0 || refilled > most {
		t.Errorf("%d letters of undecodable events, expected 61 and at most %d more", refilled+61, most)
	}
	want := map[string]int{
		"false without a letter false": 61 + refilled,
		"false without a letter true":  40 - refilled, "true without a letter false": 70,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	s.expectNothingLeft()
	if n := len(s.letters()); n != 61+refilled+70 {
		t.Errorf("%d letters, expected %d", n, 61+refilled+70)
	}
	s.letter("other")
}

// A flood of bad events meets a full dead-letter stream. Good events are still sent and the letterbox stays
// bounded. Once the stream has room, every granted letter is stored.
func TestRefusingDeadLetterStreamStopsNobody(t *testing.T) {
	s := newFixture(t)
	full := s.refuseLetters()
	r := s.started(func(c *setup) { c.batch = 8 }) // the worker holds 32 events, so 8 undecodable ones
	for i := range 40 {
		s.publish("bad"+strconv.Itoa(i), "{", "Nats-Msg-Id", fmt.Sprintf("bad-%d", i))
	}
	refusal := devstack.Response{Code: "is_archived"}
	s.slack.Respond(devstack.Next(refusal, refusal, refusal))
	for i := range 3 {
		s.publish("refused", "hello", "Nats-Msg-Id", fmt.Sprintf("refused-%d", i))
	}
	s.eventually("one kind has its share, and the other all of its letters", func() bool {
		return r.Snapshot().HeldFor["dead_letter"] == 8+3
	})
	s.publishMany("good", 100)
	s.eventually("the good events are sent", func() bool {
		return s.posted()["event 99"] == 1 && len(s.posted()) >= 100
	})
	if reasons := r.Ready(t.Context()); len(reasons) > 0 {
		t.Errorf("the worker is not ready: %v", reasons)
	}
	if held := r.Snapshot().HeldFor["dead_letter"]; held > 8+3 {
		t.Errorf("%d events wait here for their letters, expected at most 11", held)
	}
	s.expectCharged(103)
	s.makeRoom(full)
	s.expectNothingLeft()
	with := 0
	for _, l := range s.settled(143) {
		if l["outcome"] == "dead" && l["letter"] == nil {
			with++
		}
		if l["reason"] == "slack_rejected" && (l["letter"] != nil || l["attempts"] != 1.0 || l["ambiguous"] != nil) {
			t.Errorf("line %v, expected one post, and that what Slack has refused keeps its letter", l)
		}
	}
	s.expectCharged(100) // events rejected because of their channel are refunded
	if n := len(s.letters()) - 1; n != with || with != 40+3 {
		t.Errorf("%d letters and %d lines of events with one, expected those of all dead events", n, with)
	}
}

// TestLettersWaitWhereNothingIsReturned limits deliveries, so no event may be returned to the server. The
// events wait in the worker until their letters are stored.
func TestLettersWaitWhereNothingIsReturned(t *testing.T) {
	s := newFixture(t)
	full := s.refuseLetters()
	s.createConsumer(func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 5 })
	r := s.started(func(c *setup) { c.batch = 8 })
	for i := range 11 {
		s.publish("errors", "{", "Nats-Msg-Id", fmt.Sprintf("bad-%d", i))
	}
	s.eventually("all wait", func() bool { return r.Snapshot().HeldFor["dead_letter"] == 11 })
	if n := s.consumerInfo().NumAckPending; n != 11 {
		t.Errorf("%d events are unacknowledged, expected all 11", n)
	}
	s.publish("errors", "hello")
	s.eventually("a good event is sent", func() bool { return s.slack.Accepted() == 1 })
	s.makeRoom(full)
	for _, l := range s.settled(12) {
		if l["letter"] != nil {
			t.Errorf("line %v, expected that every dead event has a letter", l)
		}
	}
	s.expectNothingLeft()
}

// TestReadyReportsDeadEvents fills a worker with events for a slow channel and with unstored letters, none
// of them returnable. Readiness names the cause until the letters are stored.
func TestReadyReportsDeadEvents(t *testing.T) {
	s := newFixture(t)
	full := s.refuseLetters()
	s.createConsumer(func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 5 })
	r := s.started(func(c *setup) { c.batch, c.pace = 8, "1/1h" }) // the worker holds 32 events
	s.publish("bad0", "{")
	s.eventually("a letter is refused", func() bool { return r.waitsFor("dead_letter") != "" })
	s.publishMany("errors", 1+24) // one is posted, the others fill the lanes
	s.eventually("the channel waits", func() bool { return r.Snapshot().Channels[0].Queued == 24 })
	for i := range 20 {
		s.publish("bad"+strconv.Itoa(1+i), "{")
	}
	s.publish("deploys", "other channel")
	s.eventually("the worker says what fills it", func() bool {
		return strings.Contains(strings.Join(r.Ready(t.Context()), "\n"), "no room is left beside 8 dead events")
	})
	s.makeRoom(full)
	s.eventually("the other channel's event is posted", func() bool {
		return s.posted()["other channel"] == 1
	})
	for _, l := range s.settled(1 + 21 + 1) {
		if l["letter"] != nil {
			t.Errorf("line %v, expected that every dead event has a letter", l)
		}
	}
}
