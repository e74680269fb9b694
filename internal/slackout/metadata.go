package slackout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/slack-go/slack"
)

// The content of a message's metadata. Everyone who can read the channel through Slack's API can read it: it holds the
// event's id, which logs show too, and nothing else.
const (
	metadataType = "notifier_event"
	metadataID   = "event_id"
)

// maxMetadataID bounds an id in metadata, in bytes. Slack refuses messages whose metadata is too large and does not
// document the limit; this is far below every figure that has been reported.
const maxMetadataID = 128

// hashMark is the prefix of a hash that replaces an id.
const hashMark = "sha256:"

// markOf returns the mark of an event in metadata: its id, or a hash of it if it is long, or has a character that Slack
// might store in another form (it escapes &, < and > in texts). Different ids have different marks, so an id that looks
// like a hash is hashed as well.
func markOf(id string) string {
	plain := len(id) <= maxMetadataID && !strings.HasPrefix(id, hashMark)
	for i := 0; plain && i < len(id); i++ {
		plain = id[i] > ' ' && id[i] <= '~' && !strings.ContainsRune(`&<>"\`, rune(id[i]))
	}
	if plain {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hashMark + hex.EncodeToString(sum[:])
}

// metadataOf returns the metadata of the event with this id.
func metadataOf(id string) slack.SlackMetadata {
	return slack.SlackMetadata{EventType: metadataType, EventPayload: map[string]any{metadataID: markOf(id)}}
}

// carries reports whether metadata, as Slack returns it, is that of the event with this mark. The metadata of other apps
// is arbitrary JSON.
func carries(metadata json.RawMessage, mark string) bool {
	var found slack.SlackMetadata
	if json.Unmarshal(metadata, &found) != nil {
		return false
	}
	id, _ := found.EventPayload[metadataID].(string)
	return found.EventType == metadataType && id == mark
}
