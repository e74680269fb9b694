package consume_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/consume"
	"notifier/internal/devstack"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// In these tests a worker crashes while the post of an event is under way or after the post failed. The
// limit window is shorter than AckWait, so the script decides the redelivered event again.
const shortWindow = 500 * time.Millisecond

func brief(c *setup) { c.category, c.global = "1/500ms", "1000/500ms" }

// kept is brief, with logs that still hold the slots when the event is decided again.
func kept(c *setup) { c.category, c.global = "1/500ms+1000/1h", "1000/1h" }

// crowded fills the category limit with another event, so the limit refuses the batch. If alone is set, the
// first call is left unchanged. If granted is set, the first call admits without Redis and the first post
// is delayed until the event is decided again.
type crowded struct {
	consume.Limiter
	alone, granted bool
	calls, posts   *atomic.Int64
}

func (l crowded) Admit(ctx context.Context, batch []ratelimit.Request) ([]ratelimit.Decision, error) {
	call := l.calls.Add(1)
	switch {
	case call == 1 && l.alone:
		return l.Limiter.Admit(ctx, batch)
	case call == 1 && l.granted:
		decisions := make([]ratelimit.Decision, len(batch))
		for i := range decisions {
			decisions[i].Verdict = ratelimit.Admitted
		}
		return decisions, nil
	}
	filler := ratelimit.Request{ID: fmt.Sprint("filler", call), Delivery: "filler", Category: "errors", Cost: 1}
	decisions, err := l.Limiter.Admit(ctx, append([]ratelimit.Request{filler}, batch...))
	if err != nil {
		return nil, err
	}
	return decisions[1:], nil
}

func (l crowded) Begin(ctx context.Context, post ratelimit.Post) (ratelimit.Permit, error) {
	if l.posts.Add(1) == 1 && l.granted {
		return ratelimit.Permit{Status: ratelimit.ChannelPaused, Wait: 1200 * time.Millisecond}, nil
	}
	return l.Limiter.Begin(ctx, post)
}

// crowd wraps the limiter of a worker in a crowded one.
func crowd(changes ...func(*crowded)) func(*setup) {
	return func(c *setup) {
		brief(c)
		c.limiter = func(l consume.Limiter) consume.Limiter {
			limiter := crowded{Limiter: l, calls: new(atomic.Int64), posts: new(atomic.Int64)}
			for _, change := range changes {
				change(&limiter)
			}
			return limiter
		}
	}
}

// failOnce starts a worker that crashes after Slack rejected the only post of event "e1".
func (s *fixture) failOnce() {
	s.Helper()
	s.createConsumer(impatient)
	first := s.started(quick, brief)
	s.slack.Respond(devstack.Next(devstack.Response{RetryAfter: "2"}))
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.eventually("the failure is recorded", func() bool {
		record := s.record("e1")
		return record.Posts == 1 && record.LastName == ""
	})
	first.crash()
}

// record returns the in-flight record of an event, or the zero InFlight if there is no record.
func (s *fixture) record(id string) ratelimit.InFlight {
	s.Helper()
	text, err := s.store.HGet(s.Context(), "{"+namespace+"}:inflight", "errors:"+id).Result()
	if err == redis.Nil {
		return ratelimit.InFlight{}
	}
	kit.Check(s.T, err)
	record, err := ratelimit.ParseInFlight(text)
	kit.Check(s.T, err)
	return record
}

func (s *fixture) expectForgotten(id string) {
	s.Helper()
	s.eventually("the refused event's record is removed", func() bool {
		return s.record(id) == ratelimit.InFlight{}
	})
	s.expectNothingLeft()
}

// expectNoSlots expects that an event's slots were given back.
func (s *fixture) expectNoSlots(id string) {
	s.Helper()
	for _, scope := range []string{"global", "category:errors"} {
		members, err := s.store.ZRange(s.Context(), "{"+namespace+"}:"+scope, 0, -1).Result()
		kit.Check(s.T, err)
		for _, member := range members {
			if strings.HasPrefix(member, "errors:"+id+" ") {
				s.Errorf("%s has the slot %q", scope, member)
			}
		}
	}
}

func TestSecondDecisionKnowsTheEarlierPost(t *testing.T) {
	t.Parallel()
	refusedWithDoubt := line{"outcome": "dropped", "reason": "category", "ambiguous": true, "attempts": 1.0}
	for name, test := range map[string]struct {
		failed, webhook bool // failed: the first post certainly failed
		second          func(*setup)
		want            line
	}{
		"admitted after an unknown post, with a webhook": {
			webhook: true, second: brief,
			want: line{"outcome": "sent", "ambiguous": true, "attempts": 2.0, "redelivered": true},
		},
		"admitted after an unknown post": {
			second: brief,
			want:   line{"outcome": "sent", "ambiguous": true, "found_in_channel": true, "attempts": 1.0},
		},
		"refused after an unknown post": {second: crowd(), want: refusedWithDoubt},
		// This worker never held a permit. The second decision tells it about the earlier post.
		"refused at its turn": {
			second: crowd(func(l *crowded) { l.granted = true }), want: refusedWithDoubt,
		},
		"admitted after a certain failure": {
			failed: true, second: brief,
			want: line{"outcome": "sent", "ambiguous": nil, "attempts": 2.0},
		},
		"refused after a certain failure": {
			failed: true, second: crowd(),
			want: line{"outcome": "dropped", "reason": "category", "ambiguous": nil, "attempts": 1.0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			way := func(c *setup) { c.webhook = test.webhook }
			if test.failed {
				s.failOnce()
			} else {
				s.dieWhilePosting(brief, way)
			}
			s.started(quick, test.second, way)
			s.expectLine("e1", test.want)
			if test.want["outcome"] == "dropped" {
				s.expectForgotten("e1")
				return
			}
			if n := s.slack.HistoryRequests(); test.failed && n != 0 {
				t.Errorf("the channel was searched %d times, expected none", n)
			}
			if !test.webhook {
				s.expectEachPostedOnce(1)
			}
			s.expectNothingLeft()
		})
	}
}

// forgetful is a limiter that does not record certain failures.
type forgetful struct{ consume.Limiter }

func (l forgetful) Answered(
	ctx context.Context, answer ratelimit.Answer,
) (ratelimit.PauseScope, time.Duration, error) {
	answer.Failed = false
	return l.Limiter.Answered(ctx, answer)
}

// The worker remembers that its own post failed, even if Redis does not.
func TestSecondRefusalKnowsTheWorkersOwnFailure(t *testing.T) {
	s := newFixture(t)
	s.slack.Respond(devstack.Next(devstack.Response{RetryAfter: "2"}))
	s.started(crowd(func(l *crowded) { l.Limiter, l.alone = forgetful{l.Limiter}, true }), kept)
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.expectLine("e1", line{"outcome": "dropped", "reason": "category", "ambiguous": nil, "attempts": 1.0})
	s.expectForgotten("e1")
	s.expectNoSlots("e1")
}

// mutePermits is a limiter whose first permit does not reach the worker. Later calls do not reach Redis.
type mutePermits struct {
	consume.Limiter
	asked *atomic.Bool
}

func (l mutePermits) Begin(ctx context.Context, post ratelimit.Post) (ratelimit.Permit, error) {
	if l.asked.Swap(true) {
		return ratelimit.Permit{}, errors.New("the request is lost")
	}
	_, err := l.Limiter.Begin(ctx, post)
	return ratelimit.Permit{}, cmp.Or(err, errors.New("the reply is lost"))
}

// An event whose post was permitted without a reply is not in Slack: it gives its slots back if it is refused
// after that.
func TestSecondRefusalKnowsThatNoPostWasMade(t *testing.T) {
	s := newFixture(t)
	s.started(crowd(func(l *crowded) { l.Limiter, l.alone = mutePermits{l.Limiter, new(atomic.Bool)}, true }), kept)
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.expectLine("e1", line{"outcome": "dropped", "reason": "category", "ambiguous": nil, "attempts": 1.0})
	s.expectForgotten("e1")
	s.expectNoSlots("e1")
}

// refunds counts the refunds that were made.
type refunds struct {
	consume.Limiter
	done *atomic.Int64
}

func (r refunds) Refund(ctx context.Context, request ratelimit.Request, known string) (bool, error) {
	done, err := r.Limiter.Refund(ctx, request, known)
	if done {
		r.done.Add(1)
	}
	return done, err
}

func TestSecondAdmissionKeepsItsSlotWhenItExpires(t *testing.T) {
	s := newFixture(t)
	s.dieWhilePosting(brief, webhook)
	counted := refunds{done: new(atomic.Int64)}
	s.started(quick, brief, webhook, func(c *setup) {
		c.maxAge = shortWindow // AckWait is longer
		c.limiter = func(l consume.Limiter) consume.Limiter {
			counted.Limiter = l
			return counted
		}
	})
	s.expectLine("e1", line{"outcome": "dropped", "reason": "expired", "ambiguous": true, "attempts": 1.0})
	s.expectForgotten("e1")
	if n := counted.done.Load(); n != 0 {
		t.Errorf("%d refunds, expected none: the message may be in the channel", n)
	}
}
