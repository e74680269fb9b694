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
	"notifier/test/kit"
)

// The stream that a worker creates cannot fill the server, and one category cannot displace the others'
// letters.
func TestTheDeadLetterStreamIsBounded(t *testing.T) {
	s := newFixture(t)
	s.started(func(c *setup) { c.deadLetterBytes = 5 << 20 })
	s.eventually("the dead-letter stream is there", func() bool { return second(s.js.Stream(t.Context(), deadName)) == nil })
	config := s.streamInfo(deadName).Config
	got := []any{config.MaxBytes, config.Discard, config.MaxMsgsPerSubject, config.MaxAge}
	if diff := cmp.Diff([]any{int64(5 << 20), jetstream.DiscardOld, int64(1000), 30 * 24 * time.Hour}, got); diff != "" {
		t.Errorf("max_bytes, discard, max_msgs_per_subject, max_age (-want +got):\n%s", diff)
	}
}

// Where the server has no room for such a stream, the reason names the setting.
func TestDeadLetterStreamTooLargeForTheServer(t *testing.T) {
	s := newFixture(t)
	r := s.started(func(c *setup) { c.deadLetterBytes = 1 << 60 })
	s.eventually("the worker names the setting", func() bool { return strings.Contains(r.waitsFor("dead_letter"), "lower DEAD_LETTER_MAX_BYTES") })
	s.publish("errors", "hello")
	s.settled(1)
}

// A letter of a large event shows what it was, and leaves room for others.
func TestLetterKeepsTheStartOfALargePayload(t *testing.T) {
	s := newFixture(t)
	s.started(func(c *setup) { c.maxBytes = 5000 })
	payload := strings.Repeat("0123456789", 600)
	s.publish("errors", payload, "Nats-Msg-Id", "large", "X-Trace", "one")
	s.publish("errors", "{"+payload[:4998], "Nats-Msg-Id", "malformed")
	s.lineOf("large")
	s.lineOf("malformed")
	letter := s.letter("large")
	if string(letter.Data) != payload[:4096] || letter.Header.Get("Notifier-Shortened") != "6000" || letter.Header.Get("X-Trace") != "one" {
		t.Errorf("%d bytes with the headers %v, expected the first 4096 of 6000 bytes", len(letter.Data), letter.Header)
	}
	if letter := s.letter("malformed"); len(letter.Data) != 4999 || letter.Header["Notifier-Shortened"] != nil {
		t.Errorf("a malformed event has a letter of %d bytes with the headers %v, expected the whole payload", len(letter.Data), letter.Header)
	}
}

// A publisher's mistake in each event is a line for each and 60 letters, and one more for each second that
// passes; other categories, and what Slack has refused, have their own.
func TestACategoryWritesSixtyLettersAMinute(t *testing.T) {
	s := newFixture(t)
	s.started()
	began := time.Now()
	for i := range 100 {
		payload := []string{"{", `{"text":"x","channel":"C0ELSE"}`}[i%2] // malformed and unroutable count together
		s.publish("errors", payload, "Nats-Msg-Id", fmt.Sprintf("bad-%d", i))
	}
	s.publish("other", "{", "Nats-Msg-Id", "other")
	s.slack.Always(devstack.Behaviour{Code: "invalid_blocks"})
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
		"false without a letter false": 61 + refilled, "false without a letter true": 40 - refilled, "true without a letter false": 70,
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

// The whole flood of bad events meets a dead-letter stream that refuses: good events are sent, and what waits
// for its letter is bounded. When the stream has room, every event of which the letter was granted has it.
func TestRefusingDeadLetterStreamStopsNobody(t *testing.T) {
	s := newFixture(t)
	full := s.refuseLetters()
	r := s.started(func(c *setup) { c.batch = 8 }) // it holds 32 events, so 2 letters of each kind
	for i := range 40 {
		s.publish("bad"+strconv.Itoa(i), "{", "Nats-Msg-Id", fmt.Sprintf("bad-%d", i))
	}
	refusal := devstack.Behaviour{Code: "is_archived"}
	s.slack.Next(refusal, refusal, refusal)
	for i := range 3 {
		s.publish("refused", "hello", "Nats-Msg-Id", fmt.Sprintf("refused-%d", i))
	}
	s.eventually("one kind has its share, and the other all of its letters", func() bool { return r.Held()["dead_letter"] == 2+3 })
	s.publishMany("good", 100)
	s.eventually("the good events are sent", func() bool { return s.posted()["event 99"] == 1 && len(s.posted()) >= 100 })
	if reasons := r.Ready(t.Context()); len(reasons) > 0 {
		t.Errorf("the worker is not ready: %v", reasons)
	}
	if held := r.Held()["dead_letter"]; held > 2+3 {
		t.Errorf("%d events wait here for their letters, expected at most 5", held)
	}
	s.expectCharged(103)
	full.MaxMsgs = 1000
	kit.Check(t, second(s.js.UpdateStream(t.Context(), full)))
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
	s.expectCharged(100) // what Slack has refused because of its channel is refunded
	if n := len(s.letters()) - 1; n != with || with < 2+2+2 {
		t.Errorf("%d letters and %d lines of events with one, expected those of the held and of the returned ones at least", n, with)
	}
}

// A consumer that gives up an event after some deliveries gets none returned.
func TestMaxDeliverPreventsReturns(t *testing.T) {
	s := newFixture(t)
	s.refuseLetters()
	s.createConsumer(func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 5 })
	r := s.started(func(c *setup) { c.batch = 8 })
	s.publish("errors", "{", "Nats-Msg-Id", "first")
	s.eventually("it waits", func() bool { return r.Held()["dead_letter"] == 1 })
	for i := range 10 {
		s.publish("errors", "{", "Nats-Msg-Id", fmt.Sprintf("bad-%d", i))
	}
	for _, l := range s.settled(9) {
		if l["letter"] != false {
			t.Errorf("line %v, expected letter: false", l)
		}
	}
	s.eventually("the two that wait here are all that is unacknowledged", func() bool { return s.consumerInfo().NumAckPending == 2 })
}

// A slow channel whose events cannot be returned, and a dead-letter stream that refuses: together they leave
// room for others.
func TestSlowChannelsAndLettersTogetherLeaveRoom(t *testing.T) {
	s := newFixture(t)
	s.refuseLetters()
	s.createConsumer(func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 5 })
	r := s.started(func(c *setup) { c.batch, c.pace = 8, "1/1h" }) // it holds 32 events
	s.publish("bad0", "{")
	s.eventually("a letter is refused", func() bool { return r.waitsFor("dead_letter") != "" })
	s.publishMany("errors", 1+24) // one is posted, the others fill what lanes may hold
	s.eventually("the channel waits", func() bool { return r.Unposted()[0].Events == 24 })
	for i := range 20 {
		s.publish("bad"+strconv.Itoa(1+i), "{")
	}
	s.publish("deploys", "other channel")
	s.eventually("the other channel's event is posted", func() bool { return s.posted()["other channel"] == 1 })
}
