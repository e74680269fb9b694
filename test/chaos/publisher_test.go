package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/wait"
	"notifier/test/kit"
)

// event is a published event. Its text is its ID, so messages in the fake Slack can be matched to it.
type event struct {
	id, category string
	cost         int
	malformed    bool
	// one per acknowledged publication; some events get several stream messages on purpose
	acks []ack
}

// ack is JetStream's acknowledgement of one publication.
type ack struct {
	seq uint64
	at  time.Time
}

// publisher publishes events to NATS directly and remembers the acknowledged ones.
type publisher struct {
	js jetstream.JetStream

	mu     sync.Mutex
	events map[string]*event
	order  []string
}

// next generates an event: mostly a plain one, sometimes one that is malformed or costs two slots.
func (p *publisher) next(random *rand.Rand, categories []string) *event {
	p.mu.Lock()
	n := len(p.order) + 1
	p.mu.Unlock()
	e := &event{category: categories[random.IntN(len(categories))], cost: 1}
	switch dice := random.IntN(100); {
	case dice < 5:
		e.id, e.malformed = fmt.Sprintf("malformed-%05d", n), true
	case dice < 10:
		e.id, e.cost = fmt.Sprintf("costly-%05d", n), 2
	default:
		e.id = fmt.Sprintf("plain-%05d", n)
	}
	return e
}

// publish publishes an event, and retries until JetStream acknowledges it. With a message ID, NATS
// discards a repetition as long as it remembers the ID; a restarted server does not remember the IDs of
// events that have already left the stream. Without a message ID, a repetition is another stream message
// of the same event.
func (p *publisher) publish(ctx context.Context, e *event, withMessageID bool) error {
	message := nats.NewMsg("notify." + e.category)
	switch {
	case e.malformed:
		message.Data = fmt.Appendf(nil, `{"id":%q,"text":`, e.id)
	case e.cost == 1 && withMessageID:
		message.Data = []byte(e.id)
	default:
		message.Data = fmt.Appendf(nil, `{"id":%q,"text":%q,"cost":%d}`, e.id, e.id, e.cost)
	}
	if withMessageID {
		message.Header.Set(nats.MsgIdHdr, e.id)
	}
	for {
		attempt, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		// the loop retries sooner than the library would
		got, err := p.js.PublishMsg(attempt, message, jetstream.WithRetryAttempts(0))
		cancel()
		if err == nil {
			p.mu.Lock()
			if len(e.acks) == 0 {
				p.events[e.id] = e
				p.order = append(p.order, e.id)
			}
			e.acks = append(e.acks, ack{seq: got.Sequence, at: time.Now()})
			p.mu.Unlock()
			return nil
		}
		if !wait.For(ctx, 20*time.Millisecond) {
			return err
		}
	}
}

// run publishes at a steady rate until ctx ends. Now and then it publishes a recent event again.
func (p *publisher) run(ctx context.Context, random *rand.Rand, perSecond int, categories []string) {
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	// Finish a publication that is in flight when ctx ends: its outcome would be unknown otherwise.
	through, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(kit.Patience, cancel) })()
	var earlier []*event
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if len(earlier) > 20 && random.IntN(20) == 0 {
			again := earlier[len(earlier)-1-random.IntN(20)]
			_ = p.publish(through, again, false) // without an acknowledgement the audit expects nothing
			continue
		}
		e := p.next(random, categories)
		if p.publish(through, e, true) == nil && !e.malformed {
			earlier = append(earlier, e)
		}
	}
}

// acknowledged counts acknowledged publications.
func (p *publisher) acknowledged() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, e := range p.events {
		n += len(e.acks)
	}
	return n
}
