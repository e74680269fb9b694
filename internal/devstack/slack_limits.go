package devstack

import (
	"time"

	"notifier/internal/ratelimit"
)

// Refusals counts the posts to one channel that a Mode has refused.
type Refusals struct {
	ChannelLimit   int `json:"channel_limit"`   // 429s by the limit of the channel
	WorkspaceLimit int `json:"workspace_limit"` // 429s by the limit of the workspace
	Failed         int `json:"failed"`          // by their text
	Revoked        int `json:"revoked"`         // by the revoked token
}

// window is the state of one limit.
type window struct {
	posts  []time.Time // that count, the oldest first
	paused time.Time   // until then every post is refused
}

// slackChannel is the state of one channel.
type slackChannel struct {
	name    string // as the last sender named it
	window  window
	refused Refusals
}

// refusal returns the time until w accepts posts again. Zero means that it accepts one at now.
func (w *window) refusal(limit ratelimit.Limit, pause time.Duration, now time.Time) time.Duration {
	if left := w.paused.Sub(now); left > 0 {
		return left
	}
	var longest, full time.Duration
	for _, tier := range limit {
		longest = max(longest, tier.Window)
		if at := len(w.posts) - tier.Count; at >= 0 {
			full = max(full, w.posts[at].Add(tier.Window).Sub(now))
		}
	}
	for len(w.posts) > 0 && !w.posts[0].After(now.Add(-longest)) {
		w.posts = w.posts[1:] // append copies only the rest
	}
	if full <= 0 {
		return 0
	}
	if pause == 0 {
		pause = wholeSeconds(full)
	}
	w.paused = now.Add(pause)
	return pause
}

// wholeSeconds rounds a duration up.
func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// limit checks a post to a channel against both limits, and counts it in both if neither refuses it.
// Otherwise it returns the seconds until the pause is over, and the counter of the refusal. The caller holds
// s.mu.
func (s *Slack) limit(c *slackChannel) (retryAfter int, count *int) {
	now := s.now()
	if left := s.workspace.refusal(s.mode.WorkspaceLimit, s.mode.RetryAfter, now); left > 0 {
		return int(wholeSeconds(left) / time.Second), &c.refused.WorkspaceLimit
	}
	if left := c.window.refusal(s.mode.ChannelLimit, s.mode.RetryAfter, now); left > 0 {
		return int(wholeSeconds(left) / time.Second), &c.refused.ChannelLimit
	}
	if s.mode.WorkspaceLimit != nil {
		s.workspace.posts = append(s.workspace.posts, now)
	}
	if s.mode.ChannelLimit != nil {
		c.window.posts = append(c.window.posts, now)
	}
	return 0, nil
}

// channelState returns the state of a channel; s.mu is held.
func (s *Slack) channelState(channel string) *slackChannel {
	key := channelID(channel)
	c := s.channels[key]
	if c == nil {
		c = &slackChannel{}
		s.channels[key] = c
	}
	c.name = channel
	return c
}
