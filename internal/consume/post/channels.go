package post

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"notifier/internal/snapshot"
)

// A channel that rejected several messages in a row counts as refusing everything, and is tried once a minute.
//
// A replayed event is tried anyway, at most once a second: an operator replays it because the channel is
// repaired, and this worker may not know that yet.
const (
	rejectionsToClose = 5
	retryChannel      = time.Minute
	retryReplayed     = time.Second
)

// closedChannels holds the channels that refuse every message: archived ones, or ones without the bot. A
// request for each of their events would fail in the same way. Each worker has its own, bounded by the
// channels that the settings name.
type closedChannels struct {
	log *zap.Logger

	mu       sync.Mutex
	channels map[string]*channelState
	taken    map[string]time.Time // last success of each channel, for snapshots
}

type channelState struct {
	inRow       int
	code        string    // of Slack's last rejection
	first       time.Time // time of the first rejection in a row
	refused     time.Time // time of the last one
	closedUntil time.Time // its next try; zero if the channel is not closed
}

func newClosedChannels(log *zap.Logger) *closedChannels {
	return &closedChannels{log: log, channels: map[string]*channelState{}, taken: map[string]time.Time{}}
}

// closed reports whether the channel refuses everything and is not due for a try. A channel has one post in
// flight, so one event makes the try.
func (c *closedChannels) closed(channel string, replayed bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.channels[channel]
	if r == nil || replayed && time.Since(r.refused) >= retryReplayed {
		return false
	}
	return time.Now().Before(r.closedUntil)
}

// code returns the code of Slack's last rejection, or "".
func (c *closedChannels) code(channel string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.channels[channel]; r != nil {
		return r.code
	}
	return ""
}

// rejected counts a message that Slack rejected because of its channel.
func (c *closedChannels) rejected(channel, code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.channels[channel]
	if r == nil {
		r = &channelState{first: time.Now()}
		c.channels[channel] = r
	}
	r.inRow++
	r.code, r.refused = code, time.Now()
	if r.inRow < rejectionsToClose {
		return
	}
	r.closedUntil = r.refused.Add(retryChannel)
	if r.inRow == rejectionsToClose {
		c.log.Warn("channel refused",
			zap.String("channel", channel), zap.String("detail", code), zap.Int("in_a_row", r.inRow),
			zap.String("advice", "its events are dead-lettered, and one a minute is tried; "+
				"fix the channel, then replay them with: notifier dead replay -reason slack_rejected"))
	}
}

// accepted opens the channel after a post.
func (c *closedChannels) accepted(channel string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken[channel] = time.Now()
	r := c.channels[channel]
	if r == nil {
		return
	}
	delete(c.channels, channel)
	if !r.closedUntil.IsZero() {
		c.log.Info("channel accepts messages again", zap.String("channel", channel))
	}
}

// describe adds the last rejection, the last success, and the code of a closed channel to the queues.
func (c *closedChannels) describe(queues []snapshot.Channel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	byLane := map[string]*snapshot.Channel{}
	for i := range queues {
		byLane[queues[i].Name] = &queues[i]
	}
	for channel, r := range c.channels {
		if queue := byLane[laneOf(channel)]; queue != nil {
			queue.Rejected = &snapshot.Rejection{Code: r.code, First: r.first.UTC(), Last: r.refused.UTC()}
			if !r.closedUntil.IsZero() {
				queue.Refused = r.code
			}
		}
	}
	for channel, at := range c.taken {
		if queue := byLane[laneOf(channel)]; queue != nil {
			queue.Accepted = at.UTC()
		}
	}
}
