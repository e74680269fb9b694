package post

import (
	"sync"
	"time"

	"notifier/internal/snapshot"
)

// maxFailing bounds the list. When more events fail, their whole channel waits, and its wait says why.
const maxFailing = 10

// failing lists events that Slack has not taken, for "notifier why": the wait for their channel ends with each
// post of another event.
type failing struct {
	mu     sync.Mutex
	events map[*posting]snapshot.Failing
}

// note lists an event after a failed post.
func (f *failing) note(p *posting, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.events[p]; p.failure == "" || !known && len(f.events) == maxFailing {
		return
	}
	if f.events == nil {
		f.events = map[*posting]snapshot.Failing{}
	}
	event := snapshot.Failing{
		Channel:  laneOf(p.channel),
		Category: p.job.Result.Event.Category,
		EventID:  p.job.Result.Event.ID,
		Error:    p.failure,
	}
	if wait > 0 {
		event.Next = time.Now().Add(wait).UTC()
	}
	f.events[p] = event
}

func (f *failing) forget(p *posting) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.events, p)
}

// Failing lists a few of the events that Slack has not taken, in any order.
func (s *Sender) Failing() (list []snapshot.Failing) {
	s.failing.mu.Lock()
	defer s.failing.mu.Unlock()
	for _, event := range s.failing.events {
		list = append(list, event)
	}
	return list
}
