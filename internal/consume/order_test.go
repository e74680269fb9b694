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

// series holds the category of each event in order of publication. Event 17 has the text "event 17".
type series []string

// shuffled returns n events of each category in a fixed random order.
func shuffled(categories []string, n int) series {
	var events series
	for _, category := range categories {
		for range n {
			events = append(events, category)
		}
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(events), func(i, j int) {
		events[i], events[j] = events[j], events[i]
	})
	return events
}

// admitted returns the events that the limits admit if events are decided in order.
func (events series) admitted(global, category int) map[int]bool {
	admitted, of := map[int]bool{}, map[string]int{}
	for i, name := range events {
		if len(admitted) < global && of[name] < category {
			admitted[i] = true
			of[name]++
		}
	}
	return admitted
}

// categoriesInChannels returns n categories, and routes that spread them over the channels.
func categoriesInChannels(n, channels int) (categories []string, routes map[string]string) {
	routes = map[string]string{}
	for i := range n {
		category := fmt.Sprint("c", i)
		categories = append(categories, category)
		routes[category] = fmt.Sprint("C0ORDER", i%channels)
	}
	return categories, routes
}

// publishSeries stores a series and waits for the server. extra returns the size of an ignored field.
func (s *fixture) publishSeries(events series, extra func(i int) int) {
	s.Helper()
	for i, category := range events {
		payload := fmt.Sprintf("event %d", i)
		if n := extra(i); n > 0 {
			payload = fmt.Sprintf(`{"text":"event %d","extra":"%s"}`, i, strings.Repeat("x", n))
		}
		_, err := s.js.PublishAsync("notify."+category, []byte(payload), jetstream.WithStallWait(kit.Patience))
		kit.Check(s.T, err)
		if i%256 == 255 {
			<-s.js.PublishAsyncComplete()
		}
	}
	<-s.js.PublishAsyncComplete()
}

func nothing(int) int { return 0 }

// expectOrder waits until a series is settled. It checks that Slack has each admitted event once, and each
// channel in order of publication.
func (s *fixture) expectOrder(events series, admitted map[int]bool) {
	s.Helper()
	s.settled(len(events))
	s.expectNothingLeft()
	posted, last := map[int]int{}, map[string]int{}
	wrong, late := 0, 0
	for _, m := range s.slack.Messages() {
		var i int
		if _, err := fmt.Sscanf(m.Text, "event %d", &i); err != nil {
			s.Fatalf("%q: %v", m.Text, err)
		}
		posted[i]++
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

// eachConcurrency runs a test with one concurrent post and with eight.
func eachConcurrency(t *testing.T, test func(s *fixture, concurrency func(*setup))) {
	t.Parallel()
	for _, n := range []int{1, 8} {
		t.Run(fmt.Sprintf("SEND_CONCURRENCY=%d", n), func(t *testing.T) {
			test(newFixture(t), func(c *setup) { c.concurrency, c.batch = n, 512 })
		})
	}
}

func TestBacklogKeepsItsOrder(t *testing.T) {
	categories, routes := categoriesInChannels(10, 4)
	events := shuffled(categories, 30)
	eachConcurrency(t, func(s *fixture, concurrency func(*setup)) {
		s.createStream(nil)
		s.publishSeries(events, nothing)
		s.start(concurrency, func(c *setup) { c.category, c.routes = "10/30m", routes })
		s.expectOrder(events, events.admitted(len(events), 10))
	})
}

func TestBacklogKeepsItsOrderUnderAGlobalLimit(t *testing.T) {
	categories, routes := categoriesInChannels(10, 4)
	events := shuffled(categories, 30)
	eachConcurrency(t, func(s *fixture, concurrency func(*setup)) {
		s.createStream(nil)
		s.publishSeries(events, nothing)
		s.start(concurrency, func(c *setup) {
			c.category, c.global, c.routes = "10/30m", "60/30m", routes
		})
		s.expectOrder(events, events.admitted(60, 10))
	})
}

// Large events use up the budget, so requests end early.
func TestLargeBacklogKeepsItsOrder(t *testing.T) {
	categories, routes := categoriesInChannels(20, 1)
	events := shuffled(categories, 250)
	eachConcurrency(t, func(s *fixture, concurrency func(*setup)) {
		sizes := rand.New(rand.NewPCG(3, 4))
		s.createStream(nil)
		s.publishSeries(events, func(int) int {
			if sizes.IntN(10) > 0 {
				return sizes.IntN(300)
			}
			return sizes.IntN(30_000)
		})
		s.start(concurrency, func(c *setup) {
			c.category, c.routes = "50/30m", routes
			c.budget, c.maxBytes = 4<<20, 64<<10
		})
		s.expectOrder(events, events.admitted(len(events), 50))
	})
}

func TestLiveEventsKeepTheirOrder(t *testing.T) {
	categories, routes := categoriesInChannels(40, 4)
	events := shuffled(categories, 30)
	eachConcurrency(t, func(s *fixture, concurrency func(*setup)) {
		s.started(concurrency, func(c *setup) { c.category, c.routes = "15/30m", routes })
		for i, category := range events {
			s.publish(category, fmt.Sprintf("event %d", i))
		}
		s.expectOrder(events, events.admitted(len(events), 15))
	})
}

// An outage of Redis leaves the queue of a channel in its order.
func TestOutageOfRedisKeepsTheOrder(t *testing.T) {
	events := make(series, 12)
	for i := range events {
		events[i] = "errors"
	}
	s := newDurableFixture(t)
	r := s.started()
	s.slack.Respond(devstack.Next(devstack.Response{RetryAfter: "1"}))
	s.publishSeries(events, nothing)
	s.eventually("all are admitted", func() bool { return s.charged() == 12 && s.slack.Requests() == 1 })
	s.redis.Stop(t)
	r.expectWaitingForRedis()
	s.eventually("several turns have failed", func() bool { return r.waitsFor("slack") == "" || r.redisErrors.Load() > 2 })
	s.redis.Restart(t)
	s.expectOrder(events, events.admitted(12, 12))
}
