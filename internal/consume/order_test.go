package consume_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// expectOrder checks that Slack has each of the admitted events "event 17" once, and each channel in order of
// publication.
func (s *fixture) expectOrder(admitted map[int]bool) {
	s.Helper()
	posted, last := map[int]bool{}, map[string]int{}
	wrong, late := 0, 0
	for _, m := range s.slack.Messages() {
		var i int
		if _, err := fmt.Sscanf(m.Text, "event %d", &i); err != nil {
			s.Fatalf("%q: %v", m.Text, err)
		}
		posted[i] = true
		if !admitted[i] {
			wrong++
		}
		if i < last[m.Channel] {
			late++
		}
		last[m.Channel] = max(last[m.Channel], i)
	}
	if wrong > 0 {
		s.Errorf("%d of %d posts are of events that the limits refuse in stream order", wrong, s.slack.Accepted())
	}
	if late > 0 {
		s.Errorf("%d of %d posts came to their channel after a later event", late, s.slack.Accepted())
	}
	if len(posted) != len(admitted) || s.slack.Accepted() != len(admitted) {
		s.Errorf("%d events in %d posts, expected %d, each once", len(posted), s.slack.Accepted(), len(admitted))
	}
}

// Events of many categories, some of them large, are decided in the order of the stream. The large ones use
// up the budget, so requests end early.
func TestBacklogKeepsItsOrder(t *testing.T) {
	const categories, events, global, perCategory = 20, 4000, 450, 25
	t.Parallel()
	for _, concurrency := range []int{1, 8} {
		t.Run(fmt.Sprintf("SEND_CONCURRENCY=%d", concurrency), func(t *testing.T) {
			s := newFixture(t)
			s.createStream(nil)
			chance := rand.New(rand.NewPCG(1, 2))
			admitted, admittedOf := map[int]bool{}, map[string]int{}
			for i := range events {
				category, size := fmt.Sprint("c", chance.IntN(categories)), chance.IntN(300)
				if i%10 == 0 {
					size = chance.IntN(30_000)
				}
				payload := fmt.Sprintf(`{"text":"event %d","extra":"%s"}`, i, strings.Repeat("x", size))
				wait := jetstream.WithStallWait(kit.Patience)
				_, err := s.js.PublishAsync("notify."+category, []byte(payload), wait)
				kit.Check(t, err)
				if i%256 == 255 {
					<-s.js.PublishAsyncComplete()
				}
				if len(admitted) < global && admittedOf[category] < perCategory {
					admitted[i] = true
					admittedOf[category]++
				}
			}
			<-s.js.PublishAsyncComplete()
			s.start(func(c *setup) {
				c.concurrency, c.batch, c.budget, c.maxBytes = concurrency, 512, 4<<20, 64<<10
				c.global, c.category = fmt.Sprint(global, "/30m"), fmt.Sprint(perCategory, "/30m")
				c.routes = map[string]string{"c1": "C0ORDER1", "c2": "C0ORDER2", "c3": "C0ORDER2"}
			})
			s.settled(events)
			s.expectNothingLeft()
			s.expectOrder(admitted)
		})
	}
}

// An outage of Redis leaves the queue of a channel in its order.
func TestOutageOfRedisKeepsTheOrder(t *testing.T) {
	const events = 12
	s := newDurableFixture(t)
	r := s.started()
	s.slack.Respond(devstack.Next(devstack.Response{RetryAfter: "1"}))
	s.publishMany("errors", events)
	s.eventually("all are admitted", func() bool { return s.charged() == events && s.slack.Requests() == 1 })
	s.redis.Stop(t)
	r.expectWaitingForRedis()
	s.eventually("several turns have failed", func() bool {
		return r.waitsFor("slack") == "" || r.redisErrors.Load() > 2
	})
	s.redis.Restart(t)
	s.settled(events)
	admitted := map[int]bool{}
	for i := range events {
		admitted[i] = true
	}
	s.expectOrder(admitted)
}
