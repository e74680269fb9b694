package post

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// After so many rejections in a row a channel counts as refusing everything, and is tried only this often.
//
// A replayed event is tried all the same, unless Slack has refused another one just now: somebody replays it
// because the channel is repaired, and this replica may not have noticed that yet. If it is not repaired,
// letters that are replayed by the thousand cost a few requests.
const (
	rejectionsToClose = 5
	retryChannel      = time.Minute
	retryReplayed     = time.Second
)

// closedChannels knows which channels refuse every message: archived ones, ones that the bot was never
// invited to. Asking Slack again for each event would cost a request each and end the same way. It is this
// replica's own knowledge, and bounded by the channels that the settings name.
type closedChannels struct {
	log *zap.Logger

	mu       sync.Mutex
	channels map[string]*channelState
}

type channelState struct {
	inRow   int
	code    string    // Slack's latest
	refused time.Time // when that was
	next    time.Time // closed: when it may be tried again; zero: not closed
}

func newClosedChannels(log *zap.Logger) *closedChannels {
	return &closedChannels{log: log, channels: map[string]*channelState{}}
}

// closed reports whether a post to the channel would be rejected, and none is to be tried now.
func (c *closedChannels) closed(channel string, replayed bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.channels[channel]
	return r != nil && r.closed(replayed, time.Now())
}

func (r *channelState) closed(replayed bool, now time.Time) bool {
	if replayed && now.Sub(r.refused) >= retryReplayed {
		return false
	}
	return now.Before(r.next)
}

// try reports whether a post to the channel may be made: always, unless it refuses everything; then once a
// minute, or for a replayed event.
func (c *closedChannels) try(channel string, replayed bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.channels[channel]
	if r == nil || r.next.IsZero() {
		return true
	}
	now := time.Now()
	if r.closed(replayed, now) {
		return false
	}
	r.next = now.Add(retryChannel)
	return true
}

// code is that of Slack's last refusal of the channel; empty: there was none.
func (c *closedChannels) code(channel string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.channels[channel]; r != nil {
		return r.code
	}
	return ""
}

// rejected notes that Slack has rejected a message because of its channel.
func (c *closedChannels) rejected(channel, code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.channels[channel]
	if r == nil {
		r = &channelState{}
		c.channels[channel] = r
	}
	r.inRow++
	r.code, r.refused = code, time.Now()
	if r.inRow == rejectionsToClose {
		r.next = r.refused.Add(retryChannel)
		c.log.Warn("channel refused",
			zap.String("channel", channel), zap.String("detail", code), zap.Int("in_a_row", r.inRow),
			zap.String("advice", "its events are dead-lettered, and one a minute is tried; "+
				"fix the channel, then replay them with: notifier dead replay -reason slack_rejected"))
	}
}

// accepted notes that the channel takes messages.
func (c *closedChannels) accepted(channel string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.channels[channel]
	if r == nil {
		return
	}
	delete(c.channels, channel)
	if !r.next.IsZero() {
		c.log.Info("channel accepts messages again", zap.String("channel", channel))
	}
}

// list returns the closed channels, as waits name them, with the code of each.
func (c *closedChannels) list() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := map[string]string{}
	for channel, r := range c.channels {
		if !r.next.IsZero() {
			list[laneOf(channel)] = r.code
		}
	}
	return list
}
