package slackout

import (
	"encoding/json"
	"regexp"
	"sync"
	"sync/atomic"
	"time"
)

// maxLearned bounds what is kept of channels, in entries. The settings name the channels, so there are few.
const maxLearned = 1_000

// learned is what Slack's answers have told that the settings do not.
type learned struct {
	noMetadata atomic.Bool // Slack refuses metadata from this token

	mu    sync.Mutex
	ids   map[string]string // IDs of channels, by the name under which was posted
	botID string            // who posts with this token
	// Why this token is not shown a channel's history, by the channel's ID. It is by channel, because public and private
	// ones, and direct messages, need a scope each.
	refusals map[string]refusal
}

// refusal is Slack's code, which holds until somebody may have granted the scope.
type refusal struct {
	code  string
	until time.Time
}

// refusalHolds is for how long a refusal is not asked about again.
const refusalHolds = time.Hour

func newLearned() *learned {
	return &learned{ids: map[string]string{}, refusals: map[string]refusal{}}
}

// isID is how the ID of a channel, of a private one or of a direct message looks. Names are in lower case.
var isID = regexp.MustCompile(`^[CGD][A-Z0-9]+$`)

// id is the channel's ID, or "" while it is not known.
func (l *learned) id(channel string) string {
	if isID.MatchString(channel) {
		return channel
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ids[channel]
}

// posted learns from the answer to a post in a channel. The newest answer counts: a name can go to another channel.
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

// refusal is the code for which this token is not shown a channel's history, or "".
func (l *learned) refusal(channelID string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.refusals[channelID]; time.Now().Before(r.until) {
		return r.code
	}
	return ""
}

// refused remembers such a code.
func (l *learned) refused(channelID, code string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	keep(l.refusals, channelID, refusal{code: code, until: time.Now().Add(refusalHolds)})
}

// keep sets an entry of a map that may hold maxLearned of them.
func keep[V any](entries map[string]V, key string, value V) {
	if _, known := entries[key]; known || len(entries) < maxLearned {
		entries[key] = value
	}
}

// mayBeOurs reports whether a message that this bot has posted may be ours. Any app in the channel can set metadata
// like ours, and by it keep an event out; so what another bot has posted does not count. While our own is not known,
// before the first post of this process, metadata alone has to do: whoever forges it must know the event's id before
// the event is posted, and may post in the channel already.
func (l *learned) mayBeOurs(botID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.botID == "" || botID == "" || botID == l.botID
}
