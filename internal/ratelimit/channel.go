package ratelimit

import (
	"fmt"
	"regexp"
)

// webhookChannel stands for the one channel of a webhook, which nobody names.
const webhookChannel = "webhook"

// channelID is the shape of the IDs of Slack's channels, groups and direct messages.
var channelID = regexp.MustCompile(`^[CGD][A-Z0-9]{6,}$`)

func channelName(asSet string) string {
	if asSet == "" {
		return webhookChannel
	}
	return asSet
}

// mostMoves bounds how often a call is repeated because the channel has another ID than was thought. Two are possible: Redis
// has learned the ID, or has lost its memory.
const mostMoves = 3

// withChannel calls with the key that a channel is known by: its ID, or its name while the ID is unknown. The call returns
// another key if Redis knows it by that, and is then repeated with it. learns is "1" if the channel is given by a name.
func (l *Limiter) withChannel(asSet string, call func(key, learns string) (other string, reply any, err error)) (any, error) {
	name := channelName(asSet)
	learns := flag(name != webhookChannel && !channelID.MatchString(name))
	key := name
	if learned, found := l.channelKeys.Load(name); found {
		key = learned.(string)
	}
	for range mostMoves {
		other, reply, err := call(key, learns)
		if err != nil || other == "" {
			return reply, err
		}
		l.channelKeys.Store(name, other)
		key = other
	}
	return nil, fmt.Errorf("the ID of channel %q changes with each call", name)
}

// ChannelID is the ID of a channel that the settings name, as far as Redis has shown it to this replica; empty: it is not known. Begin and
// Answered find it out from the answers to the posts of all replicas.
func (l *Limiter) ChannelID(asSet string) string {
	if learned, found := l.channelKeys.Load(channelName(asSet)); found && channelID.MatchString(learned.(string)) {
		return learned.(string)
	}
	return ""
}

// otherChannel is the channel's other key, if the reply has this status; empty: it has another one.
func otherChannel(reply any, status int64) string {
	code, _, key, err := threeFields(reply, "status")
	if err != nil || code != status {
		return ""
	}
	return key
}
