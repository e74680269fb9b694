package consume_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/consume"
	"notifier/internal/devstack"
	"notifier/internal/ratelimit"
)

// An archived channel costs five requests and then one a minute, regardless of the number of events. It
// takes no slots and does not affect other channels.
func TestRefusingChannelIsClosed(t *testing.T) {
	s := newFixture(t)
	r := s.started(func(c *setup) { c.concurrency, c.category = 1, "8/30m" })
	refusal := devstack.Response{Code: "is_archived"}
	s.slack.Respond(devstack.Next(refusal, refusal, refusal, refusal, refusal))
	for i := range 8 {
		s.publish("errors", fmt.Sprintf("event %d", i), "Nats-Msg-Id", fmt.Sprintf("e%d", i))
	}
	lines := s.settled(8)
	s.expectOutcomes(map[string]int{"dead slack_rejected": 8}, lines)
	for _, l := range lines {
		if l["detail"] != "is_archived" || l["channel"] != "C0DEFAULT" {
			t.Errorf("line %v, expected the channel and Slack's code", l)
		}
	}
	if n := s.slack.Requests(); n != 5 {
		t.Errorf("%d posts were tried, expected 5", n)
	}
	if diff := cmp.Diff(map[string]string{"C0DEFAULT": "is_archived"}, r.refused()); diff != "" {
		t.Errorf("refused channels (-want +got):\n%s", diff)
	}
	if letters := s.letters(); len(letters) != 8 {
		t.Errorf("%d dead letters, expected 8", len(letters))
	}
	s.expectCharged(0)
	if lines := s.log.named("channel refused"); len(lines) != 1 {
		t.Errorf("%d lines report that the channel is refused, expected one", len(lines))
	}
	s.publish("deploys", "to another channel")
	s.eventually("another channel gets its message", func() bool { return s.slack.Accepted() == 1 })
}

// refused returns Slack's code for each channel that refuses every message.
func (r *replica) refused() map[string]string {
	refused := map[string]string{}
	for _, c := range r.Snapshot().Channels {
		if c.Refused != "" {
			refused[c.Name] = c.Refused
		}
	}
	return refused
}

// replay stores an event like "dead replay" does and returns its log line.
func (s *fixture) replay(id string) line {
	s.Helper()
	s.publish("errors", "replayed "+id, "Notifier-Event-Id", id, "Nats-Msg-Id", "replay."+id)
	return s.lineOf(id)
}

// Otherwise a worker that has not noticed the repair would dead-letter the replayed events again.
func TestReplayedEventTriesRefusedChannel(t *testing.T) {
	s := newFixture(t)
	r := s.started()
	s.slack.Respond(devstack.Always(devstack.Response{Code: "not_in_channel"}))
	s.publishMany("errors", 8)
	s.settled(8)
	refused := time.Now()
	s.slack.Respond(nil)
	for n, sent := 0, false; !sent; n++ {
		replayed := time.Now()
		sent = s.replay(fmt.Sprintf("e%d", n))["outcome"] == "sent"
		if !sent && replayed.Sub(refused) > time.Second {
			t.Fatalf("a letter again %s after the last refusal", replayed.Sub(refused))
		}
	}
	if refused := r.refused(); len(refused) != 0 {
		t.Errorf("refused channels %v after a post, expected none", refused)
	}
}

// begunByAnother simulates another worker that begins a post of the event right after admission and then
// crashes.
type begunByAnother struct {
	consume.Limiter
	id string
}

func (l begunByAnother) Admit(ctx context.Context, batch []ratelimit.Request) ([]ratelimit.Decision, error) {
	decisions, err := l.Limiter.Admit(ctx, batch)
	for _, request := range batch {
		if err == nil && request.ID == l.id {
			_, err = l.Limiter.Begin(ctx, ratelimit.Post{
				Request: request, Channel: "C0DEFAULT", Name: "another-1", Longest: time.Millisecond,
			})
		}
	}
	return decisions, err
}

// The channel may have accepted the other worker's post before it began to refuse. The event may be in
// Slack and keeps its slot.
func TestRefusedChannelAfterAnotherWorkersPost(t *testing.T) {
	s := newFixture(t)
	s.started(quick, func(c *setup) {
		c.limiter = func(l consume.Limiter) consume.Limiter { return begunByAnother{l, "posted"} }
	})
	s.slack.Respond(devstack.Always(devstack.Response{Code: "is_archived"}))
	s.publishMany("errors", 5)
	s.settled(5)
	s.publish("errors", "perhaps", "Nats-Msg-Id", "posted")
	s.expectLine("posted", line{"reason": "slack_rejected", "detail": "is_archived", "ambiguous": true})
	if n := s.slack.Requests(); n != 5 {
		t.Errorf("%d posts were tried, expected 5", n)
	}
	s.expectCharged(1)
}

// One publisher's invalid blocks must not close the channel for others.
func TestBadMessagesDoNotCloseAChannel(t *testing.T) {
	s := newFixture(t)
	r := s.started(func(c *setup) { c.concurrency = 1 })
	refusals := slices.Repeat([]devstack.Response{{Code: "invalid_blocks"}}, 7)
	s.slack.Respond(devstack.Next(refusals...))
	s.publishMany("errors", 8)
	s.expectOutcomes(map[string]int{"dead slack_rejected": 7, "sent": 1}, s.settled(8))
	if refused := r.refused(); len(refused) != 0 {
		t.Errorf("refused channels %v, expected none", refused)
	}
}
