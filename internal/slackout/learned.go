package slackout

import (
	"encoding/json"
	"regexp"
	"sync"
	"sync/atomic"
	"time"
)

// maxLearned is the highest number of channels to remember. The settings name the channels, so there are few.
const maxLearned = 1_000

// learned holds facts from Slack's responses that are not in the settings.
type learned struct {
	noMetadata atomic.Bool // Slack refuses metadata from this token

	mu    sync.Mutex
	ids   map[string]string // IDs of channels, by the name to which was posted
	botID string            // the bot that posts with this token
	// Why this token may not read a channel's history, by the channel's ID. It is kept per channel, because
	// public channels, private ones and direct messages each need a scope of their own.
	refusals map[string]refusal
}

// refusal is Slack's code, which is remembered until the scope may have been granted.
type refusal struct {
	code  string
	until time.Time
}

// refusalTTL limits the lifetime of a remembered refusal.
const refusalTTL = time.Hour

func newLearned() *learned {
	return &learned{ids: map[string]string{}, refusals: map[string]refusal{}}
}

// isID matches the ID of a channel, a private channel or a direct message. Names are in lower case.
var isID = regexp.MustCompile(`^[CGD][A-Z0-9]+$`)

// id returns the channel's ID, or "" while it is unknown.
func (l *learned) id(channel string) string {
	if isID.MatchString(channel) {
		return channel
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ids[channel]
}

// posted learns from the response to a post in a channel. The newest response counts: a name can move to
// another channel.
func (l *learned) posted(channel string, answer reply) {
	var echo struct {
		BotID string `json:"bot_id"`
	}
	_ = json.Unmarshal(answer.Message, &echo)
	l.mu.Lock()
	defer l.mu.Unlock()
	if echo.BotID != "" {
		l.botID = echo.BotID
	}
	if channel == answer.Channel || !isID.MatchString(answer.Channel) {
		return
	}
	keep(l.ids, channel, answer.Channel)
}

// refusal returns the code with which Slack refuses this token a channel's history, or "".
func (l *learned) refusal(channelID string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.refusals[channelID]; time.Now().Before(r.until) {
		return r.code
	}
	return ""
}

// rememberRefusal remembers such a code.
func (l *learned) rememberRefusal(channelID, code string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	keep(l.refusals, channelID, refusal{code: code, until: time.Now().Add(refusalTTL)})
}

// keep sets an entry of a map that holds at most maxLearned entries.
func keep[V any](entries map[string]V, key string, value V) {
	if _, known := entries[key]; known || len(entries) < maxLearned {
		entries[key] = value
	}
}

// mayBeOurs reports whether a message posted by this bot may be ours. Any app in the channel can set metadata
// like ours and thereby suppress an event, so messages of other bots do not count. While our own bot is
// unknown, before the first post of this process, metadata alone has to suffice: to forge it, an app has to
// know the event's id before the event is posted, and may post in the channel already.
func (l *learned) mayBeOurs(botID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.botID == "" || botID == "" || botID == l.botID
}
