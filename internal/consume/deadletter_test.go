package consume_test

import (
	"context"
	"errors"
	"fmt"
	"net"
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

// bad lists one event of each kind that is never admitted.
var bad = []struct{ name, category, payload, reason, subject string }{
	{"too large", "errors", strings.Repeat("x", 2001), "too_large", "notify-dead.errors"},
	{"invalid UTF-8", "errors", "caf\xe9", "malformed", "notify-dead.errors"},
	{"broken JSON", "errors", `{"text":"x"`, "malformed", "notify-dead.errors"},
	{"wrong type", "errors", `{"text":7}`, "malformed", "notify-dead.errors"},
	{"neither text nor blocks", "errors", `{"id":"x"}`, "malformed", "notify-dead.errors"},
	{"empty", "errors", "", "malformed", "notify-dead.errors"},
	{"51 blocks", "errors", `{"blocks":[` + strings.Repeat(`{"type":"divider"},`, 50) + `{"type":"divider"}]}`, "malformed", "notify-dead.errors"},
	{"unlisted channel", "errors.db", `{"text":"x","channel":"C0ELSE"}`, "unroutable", "notify-dead.errors.db"},
	{"cost of nothing", "errors", `{"text":"x","cost":0}`, "malformed", "notify-dead.errors"},
	{"cost above the limit", "errors", `{"text":"x","cost":11}`, "malformed", "notify-dead.errors"},
	{"category of 129 bytes", strings.Repeat("c", 129), "x", "malformed", "notify-dead._invalid"},
	{"category that is not UTF-8", "caf\xe9", "x", "malformed", "notify-dead._invalid"},
}

func TestBadEventIsDeadLetteredUncharged(t *testing.T) {
	s := newFixture(t)
	s.started(theLimits, func(c *setup) { c.maxBytes = 2000 })
	for i, test := range bad {
		began := time.Now()
		id := fmt.Sprintf("bad-%d", i)
		// notifier's own headers replace forged ones.
		seq := s.publish(test.category, test.payload, "Nats-Msg-Id", id, "X-Trace", "one", "X-Trace", "two", "x-lower", "kept",
			"Notifier-Reason", "sent", "Notifier-Shortened", "99", "notifier-detail", "forged")
		l := s.lineOf(id)
		if l["outcome"] != "dead" || l["reason"] != test.reason {
			t.Errorf("%s: the line has %v %v, expected dead %s", test.name, l["outcome"], l["reason"], test.reason)
		}
		letter := s.letter(id)
		if letter.Subject != test.subject {
			t.Errorf("%s: dead-lettered to %q, expected %q", test.name, letter.Subject, test.subject)
		}
		if string(letter.Data) != test.payload {
			t.Errorf("%s: the payload has changed", test.name)
		}
		header := letter.Header
		given, err := time.Parse(time.RFC3339, header.Get("Notifier-Time"))
		if err != nil || given.Before(began) || given.After(time.Now()) {
			t.Errorf("%s: Notifier-Time is %q, expected the time it was dead-lettered",
				test.name, header.Get("Notifier-Time"))
		}
		if header.Get("Notifier-Detail") != l["detail"] || l["detail"] == "" {
			t.Errorf("%s: Notifier-Detail is %q, expected the line's %q",
				test.name, header.Get("Notifier-Detail"), l["detail"])
		}
		for _, own := range []string{"Notifier-Time", "Notifier-Detail", "Nats-Msg-Id"} {
			header.Del(own)
		}
		want := nats.Header{
			"Notifier-Event-Id": {id}, "Notifier-Reason": {test.reason},
			"Notifier-Subject":    {"notify." + test.category},
			"Notifier-Stream-Seq": {strconv.FormatUint(seq, 10)}, "X-Trace": {"one", "two"}, "x-lower": {"kept"},
		}
		if diff := cmp.Diff(want, header); diff != "" {
			t.Errorf("%s: headers (-want +got):\n%s", test.name, diff)
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

// A publisher can put a wildcard in place of the category. No letter can be published to such a subject.
func TestInvalidCategoryIsDeadLettered(t *testing.T) {
	s := newFixture(t)
	s.started()
	for i, category := range []string{"*", "a.*", "a.>", ">"} {
		id := fmt.Sprintf("w%d", i)
		message := nats.NewMsg("notify." + category)
		message.Header.Set("Nats-Msg-Id", id)
		message.Data = []byte("{")
		kit.Check(t, s.conn.PublishMsg(message))
		s.lineOf(id)
		if letter := s.letter(id); letter.Subject != "notify-dead._invalid" {
			t.Errorf("category %q is dead-lettered to %q, expected notify-dead._invalid", category, letter.Subject)
		}
	}
	s.expectNothingLeft()
}

// Nats- headers take effect when the event is stored. On the dead-letter stream they could wipe the stream
// or prevent the letter from being stored.
func TestServerHeadersAreNotDeadLettered(t *testing.T) {
	s := newFixture(t)
	s.createStream(func(config *jetstream.StreamConfig) { config.AllowRollup, config.AllowMsgTTL = true, true })
	_, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: deadName, Subjects: []string{"notify-dead.>"}, AllowRollup: true, AllowMsgTTL: true,
	})
	kit.Check(t, err)
	s.started()
	s.publish("errors", "{", "Nats-Msg-Id", "first")
	s.lineOf("first")
	s.publish("errors", "{", "Nats-Msg-Id", "rollup", "Nats-Rollup", "all")
	s.lineOf("rollup")
	s.publish("errors", "{", "Nats-Msg-Id", "expecting", "Nats-Expected-Stream", streamName, "Nats-Expected-Last-Sequence", "2")
	s.lineOf("expecting")
	s.publish("errors", "{", "Nats-Msg-Id", "fleeting", "Nats-TTL", "1s")
	s.lineOf("fleeting")
	if n := len(s.letters()); n != 4 {
		t.Errorf("%d dead letters, expected 4", n)
	}
	for _, letter := range s.letters() {
		for name := range letter.Header {
			if strings.HasPrefix(name, "Nats-") && name != "Nats-Msg-Id" {
				t.Errorf("a dead letter has the header %s", name)
			}
		}
	}
}

// An event may be as large as the server allows. Its letter needs more headers, so the payload is
// shortened; otherwise the server would refuse the letter for ever.
func TestLargestEventIsDeadLettered(t *testing.T) {
	s := newFixture(t)
	s.started()
	headers := []string{"Nats-Msg-Id", "largest", "X-Long", strings.Repeat("h", 3000)}
	empty := nats.NewMsg("notify.errors")
	empty.Header["Nats-Msg-Id"], empty.Header["X-Long"] = headers[1:2], headers[3:4]
	size := int(s.conn.MaxPayload()) - empty.Size() + len(empty.Subject)
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

	// Headers are limited to 64 kB. If the publisher's headers do not fit, they are dropped; ce-source is
	// kept until then because decoding needs it.
	s.publish("errors", "{", "Nats-Msg-Id", "headers", "ce-source", strings.Repeat("h", 1<<16-100))
	s.lineOf("headers")
	if letter := s.letter("headers"); letter.Header.Get("Notifier-Reason") != "malformed" {
		t.Errorf("the letter's headers are %v", letter.Header)
	}
	s.publish("errors", "after them")
	s.settled(3)
	s.expectEachPostedOnce(1)
}

// Clients in other languages can store header names that nats.go refuses to publish.
func TestUnpublishableHeaderIsLeftOut(t *testing.T) {
	s := newFixture(t)
	s.started()
	peer, err := net.Dial("tcp", s.nats.Addr())
	kit.Check(t, err)
	defer func() { _ = peer.Close() }()
	header := "NATS/1.0\r\nNats-Msg-Id: odd\r\nNot a name: x\r\nX-Fine: y\r\n\r\n"
	_, err = fmt.Fprintf(peer, "CONNECT {\"headers\":true,\"verbose\":false}\r\nHPUB notify.errors %d %d\r\n%s{\r\n",
		len(header), len(header)+1, header)
	kit.Check(t, err)
	s.lineOf("odd")
	if fine := s.letter("odd").Header.Get("X-Fine"); fine != "y" {
		t.Errorf("X-Fine is %q, expected the header that can be published to be kept", fine)
	}
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
	s.eventually("the dead-letter stream is there", func() bool {
		return s.js.DeleteStream(t.Context(), deadName) == nil
	})
	s.publish("errors", "{", "Nats-Msg-Id", "bad")
	s.lineOf("bad")
	s.letter("bad")
}

// second drops the first of two results.
func second[T any](_ T, err error) error { return err }
