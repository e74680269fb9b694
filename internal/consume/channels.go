package consume

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// After so many refusals in a row a channel counts as refusing everything, and is tried this often only.
const (
	refusalsToClose = 5
	retryChannel    = time.Minute
)

// channels knows which channels refuse everything: archived ones, ones that the bot was never invited to. Asking Slack
// again for each event would cost a request each and end the same way. It is this replica's own knowledge, and bounded
// by the channels that the settings name.
type channels struct {
	log *zap.Logger

	mu      sync.Mutex
	refused map[string]*refusedChannel
}

type refusedChannel struct {
	inRow int
	code  string    // Slack's latest
	next  time.Time // closed: when it may be tried again; zero: not closed
}

func newChannels(log *zap.Logger) *channels {
	return &channels{log: log, refused: map[string]*refusedChannel{}}
}

// closed reports whether a post to the channel would be refused, and with which code. Once a minute it says no, for one
// post.
func (c *channels) closed(channel string) (code string, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.refused[channel]
	if r == nil || r.next.IsZero() {
		return "", false
	}
	if now := time.Now(); !now.Before(r.next) {
		r.next = now.Add(retryChannel)
		return "", false
	}
	return r.code, true
}

// refuse notes that Slack has refused the channel.
func (c *channels) refuse(channel, code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.refused[channel]
	if r == nil {
		r = &refusedChannel{}
		c.refused[channel] = r
	}
	r.inRow++
	r.code = code
	if r.inRow == refusalsToClose {
		r.next = time.Now().Add(retryChannel)
		c.log.Warn("channel refused", zap.String("channel", channel), zap.String("detail", code), zap.Int("in_a_row", r.inRow),
			zap.String("advice", "its events are dead-lettered and one a minute is tried; mend the channel, then put them back with: notifier dead replay -reason slack_rejected"))
	}
}

// take notes that the channel takes messages.
func (c *channels) take(channel string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.refused[channel]
	if r == nil {
		return
	}
	delete(c.refused, channel)
	if !r.next.IsZero() {
		c.log.Info("channel takes messages again", zap.String("channel", channel))
	}
}

// list is the closed channels with the code of each.
func (c *channels) list() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := map[string]string{}
	for channel, r := range c.refused {
		if !r.next.IsZero() {
			list[channel] = r.code
		}
	}
	return list
}
