package slackout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/slack-go/slack"
)

// What a message's metadata says. Whoever can read the channel through Slack's API can read it: it holds the event's
// id, which logs show too, and nothing else.
const (
	metadataType = "notifier_event"
	metadataID   = "event_id"
)

// maxMetadataID bounds an id in metadata, in bytes. Slack refuses messages whose metadata is too large and does not
// say where that begins; this is far below every figure that has been reported.
const maxMetadataID = 128

// hashMark begins what stands for an id that is not written out.
const hashMark = "sha256:"

// markOf is what stands for an event's id in metadata: the id itself, or a hash of it where it is long, or has a
// character that Slack might keep in another form (it escapes &, < and > in texts). Ids that differ have marks that
// differ, so one that looks like a hash is hashed as well.
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

// metadataOf is the metadata of the event with this id.
func metadataOf(id string) slack.SlackMetadata {
	return slack.SlackMetadata{EventType: metadataType, EventPayload: map[string]any{metadataID: markOf(id)}}
}

// carries reports whether metadata, as Slack tells it, is that of the event with this mark. Other apps' metadata is
// JSON of any form.
func carries(metadata json.RawMessage, mark string) bool {
	var told slack.SlackMetadata
	if json.Unmarshal(metadata, &told) != nil {
		return false
	}
	id, _ := told.EventPayload[metadataID].(string)
	return told.EventType == metadataType && id == mark
}
