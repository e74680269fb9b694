package consume_test

import (
	"fmt"
	"strconv"
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
