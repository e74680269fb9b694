package slackout

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/internal/event"
	"notifier/test/kit"
)

// startFinding starts a fake Slack and a Poster with a token.
func startFinding(t *testing.T) (*devstack.Slack, *Poster) {
	t.Helper()
	s := startSlack(t)
	return s, newPoster(t, ways[0].config(s))
}

// note is an event that was published just now.
func note(id string) event.Event {
	return event.Event{ID: id, Category: "errors", Text: "hello", Published: time.Now()}
}

func mustPost(t *testing.T, p *Poster, ev event.Event) Receipt {
	t.Helper()
	receipt, err := p.Post(t.Context(), ev)
	kit.Check(t, err)
	return receipt
}

func wantFound(t *testing.T, p *Poster, ev event.Event, want Receipt) {
	t.Helper()
	if got, found, err := p.Find(t.Context(), ev); err != nil || !found || got != want {
		t.Errorf("Find(%.40q) = %+v, %t, %v, want %+v", ev.ID, got, found, err, want)
	}
}

func wantNotFound(t *testing.T, p *Poster, ev event.Event) {
	t.Helper()
	if got, found, err := p.Find(t.Context(), ev); err != nil || found || got != (Receipt{}) {
		t.Errorf("Find(%.40q) = %+v, %t, %v, want nothing", ev.ID, got, found, err)
	}
}

func wantNoHistory(t *testing.T, err error, reason string) {
	t.Helper()
	var failure *Error
	if !errors.Is(err, ErrHistoryUnavailable) || errors.As(err, &failure) || err.Error() != "slack: the history cannot be read: "+reason {
		t.Errorf("error %v, want ErrNoHistory for %s", err, reason)
	}
}

func TestFind(t *testing.T) {
	s, p := startFinding(t)
	for _, id := range []string{"e1", strings.Repeat("x", 300), "two words <&>", "世界"} {
		ev := note(id)
		wantNotFound(t, p, ev)
		s.Respond(devstack.Next(devstack.Response{Reset: true}))
		_, err := p.Post(t.Context(), ev)
		wantError(t, err, Error{Class: Ambiguous, Code: "connection_reset"})
		wantNotFound(t, p, ev)

		s.Respond(devstack.Next(devstack.Response{Accept: true, Reset: true}))
		_, err = p.Post(t.Context(), ev)
		wantError(t, err, Error{Class: Ambiguous, Code: "connection_reset"})
		messages := s.Messages()
		wantFound(t, p, ev, Receipt{Channel: "C0DEFAULT", TS: messages[len(messages)-1].TS})
		elsewhere := ev
		elsewhere.Channel = "C0OTHER"
		wantNotFound(t, p, elsewhere)
	}
}

func TestFindInAThread(t *testing.T) {
	s, p := startFinding(t)
	parent := mustPost(t, p, note("parent"))
	reply := note("reply")
	reply.ThreadTS = parent.TS
	wantNotFound(t, p, reply)
	receipt := mustPost(t, p, reply)
	wantFound(t, p, reply, receipt)

	outside := reply
	outside.ThreadTS = ""
	wantNotFound(t, p, outside)
	reply.ThreadTS = "1.000001"
	_, _, err := p.Find(t.Context(), reply)
	wantNoHistory(t, err, "thread_not_found")

	// The parent and the reply fill the first page.
	s.Respond(devstack.AlwaysHistory(devstack.Response{PageSize: 2}))
	late := note("late")
	late.ThreadTS = parent.TS
	receipt = mustPost(t, p, late)
	wantFound(t, p, late, receipt)
}

// Find ignores messages from before the event's publication.
func TestFindLooksBackToThePublication(t *testing.T) {
	_, p := startFinding(t)
	ev := note("e1")
	receipt := mustPost(t, p, ev)
	ev.Published = time.Now().Add(30 * time.Second) // by a clock that is ahead
	wantFound(t, p, ev, receipt)
	ev.Published = time.Now().Add(2 * time.Minute)
	wantNotFound(t, p, ev)
	ev.Published = time.Time{}
	wantFound(t, p, ev, receipt)
}

// fill posts n other messages.
func fill(t *testing.T, p *Poster, n int) {
	t.Helper()
	for i := range n {
		mustPost(t, p, note(fmt.Sprint("other", i)))
	}
}

func TestFindTurnsPages(t *testing.T) {
	s, p := startFinding(t)
	fill(t, p, 9)
	ev := note("e1")
	receipt := mustPost(t, p, ev)
	ev.Published = ev.Published.Add(-time.Second)
	for _, test := range []struct {
		size, requests int
		found          bool
	}{{3, 4, true}, {2, 5, true}, {1, 5, false}, {0, 1, true}} {
		s.Respond(devstack.AlwaysHistory(devstack.Response{PageSize: test.size}))
		before := s.HistoryRequests()
		got, found, err := p.Find(t.Context(), ev)
		if test.found {
			if err != nil || !found || got != receipt {
				t.Errorf("with pages of %d: %+v, %t, %v", test.size, got, found, err)
			}
		} else {
			wantNoHistory(t, err, "too_many_messages")
		}
		if n := s.HistoryRequests() - before; n != test.requests {
			t.Errorf("with pages of %d: %d requests, want %d", test.size, n, test.requests)
		}
	}
}

// Slack reads no history by a channel's name, and returns its ID when something is posted there.
func TestFindByName(t *testing.T) {
	s, p := startFinding(t)
	ev := note("e1")
	_, _, err := newPoster(t, ways[1].config(s)).Find(t.Context(), ev)
	wantNoHistory(t, err, "webhook")
	ev.Channel = "#alerts"
	_, _, err = p.Find(t.Context(), ev)
	wantNoHistory(t, err, "unknown_channel")
	if n := s.HistoryRequests(); n != 0 {
		t.Errorf("%d requests without an ID", n)
	}
	receipt := mustPost(t, p, ev)
	if receipt.Channel == "#alerts" {
		t.Fatal("the fake Slack does not return an ID")
	}
	wantFound(t, p, ev, receipt)

	// The name goes to another channel.
	s.Respond(devstack.Next(devstack.Response{Body: `{"ok":true,"channel":"C0NEW","ts":"1.000001"}`}))
	ev.Channel = "#alerts"
	mustPost(t, p, ev)
	wantNotFound(t, p, ev)
}

// Any app may write metadata like ours; once this one knows which bot it is, only its own count.
func TestFindCountsOnlyItsOwn(t *testing.T) {
	s, p := startFinding(t)
	// The metadata of other apps must not make a page unreadable.
	forged := devstack.Response{Body: `{"ok":true,"messages":[
		{"ts":"2.000001","metadata":{"event_type":7,"event_payload":["e1"]}},
		{"ts":"2.000002","metadata":"e1","text":5,"blocks":{}},
		{"type":"message"},
		{"ts":"1.000001","bot_id":"B0OTHER",
			"metadata":{"event_type":"notifier_event","event_payload":{"event_id":"e1","category":"errors"}}}]}`}
	s.Respond(devstack.NextHistory(forged))
	wantFound(t, p, note("e1"), Receipt{Channel: "C0DEFAULT", TS: "1.000001"})
	mustPost(t, p, note("e2"))
	s.Respond(devstack.NextHistory(forged))
	wantNotFound(t, p, note("e1"))
}

func TestLearnedIsBounded(t *testing.T) {
	l := newLearned()
	for i := range maxLearned + 10 {
		l.posted(fmt.Sprint("#name", i), reply{Channel: fmt.Sprint("C", i)})
		l.rememberRefusal(fmt.Sprint("C", i), "missing_scope")
	}
	l.posted("#name0", reply{Channel: "C0NEW"})
	if len(l.ids) != maxLearned || len(l.refusals) != maxLearned || l.id("#name0") != "C0NEW" {
		t.Errorf("%d ids and %d refusals, #name0 is %s", len(l.ids), len(l.refusals), l.id("#name0"))
	}
	l.posted("#odd", reply{Channel: "not an ID"})
	if got := l.id("#odd"); got != "" {
		t.Errorf("learned %q", got)
	}
}

// An admin may grant the scope while the process runs.
func TestARefusalIsForgottenAfterAWhile(t *testing.T) {
	l := newLearned()
	l.refusals["C1"] = refusal{code: "missing_scope", until: time.Now()}
	if code := l.refusal("C1"); code != "" {
		t.Errorf("code %q an hour later, expected none", code)
	}
}
