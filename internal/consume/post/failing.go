package post

import (
	"sync"
	"time"
)

// Failing is an event that Slack has not taken, and that is tried again.
type Failing struct {
	Channel  string // as waits name it
	Category string
	EventID  string
	Error    string    // Slack's code at its last post
	Next     time.Time // of its next post, at the earliest; zero: when its channel takes posts
}

// mostFailing is how many are known at a time: enough for the few that fail alone. When more fail, it is for
// what the whole channel waits for.
const mostFailing = 10

// failing are events that Slack has not taken, for "notifier why": the wait for their channel is over with
// each post of another event.
type failing struct {
	mu     sync.Mutex
	events map[*posting]Failing
}

// note takes an event whose next post is due after the wait.
func (f *failing) note(p *posting, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.events[p]; p.failure == "" || !known && len(f.events) == mostFailing {
		return
	}
	if f.events == nil {
		f.events = map[*posting]Failing{}
	}
	event := Failing{
		Channel:  laneOf(p.channel),
		Category: p.Event.Category,
		EventID:  p.Event.ID,
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
func (s *Sender) Failing() (list []Failing) {
	s.failing.mu.Lock()
	defer s.failing.mu.Unlock()
	for _, event := range s.failing.events {
		list = append(list, event)
	}
	return list
}
