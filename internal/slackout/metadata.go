package slackout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/slack-go/slack"

	"notifier/internal/event"
)

// Metadata identifies the event and holds nothing else, because everyone who can read the channel through
// Slack's API can read it. An id is unique within its category; a CloudEvent's id only together with its
// source. One channel can hold events of several categories.
const (
	metadataType     = "notifier_event"
	metadataID       = "event_id"
	metadataCategory = "category"
	metadataSource   = "source" // only where there is one
)

// maxMetadataID bounds an id, a category or a source in metadata, in bytes. Slack refuses messages whose
// metadata is too large and does not document the limit; 128 is far below every figure that has been
// reported.
const maxMetadataID = 128

// hashMark is the prefix of a hash that replaces one of them.
const hashMark = "sha256:"

// mark identifies an event in metadata.
type mark struct{ id, category, source string }

func markOf(ev event.Event) mark {
	return mark{id: markText(ev.ID), category: markText(ev.Category), source: markText(ev.IDSource)}
}

// markText returns an id, a category or a source as metadata has it: itself, or a hash of it if it is long,
// or has a character that Slack might store in another form (it escapes &, < and > in texts). Different texts
// stay different, so one that looks like a hash is hashed as well.
func markText(text string) string {
	plain := len(text) <= maxMetadataID && !strings.HasPrefix(text, hashMark)
	for i := 0; plain && i < len(text); i++ {
		plain = text[i] > ' ' && text[i] <= '~' && !strings.ContainsRune(`&<>"\`, rune(text[i]))
	}
	if plain {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return hashMark + hex.EncodeToString(sum[:])
}

func (m mark) metadata() slack.SlackMetadata {
	payload := map[string]any{metadataID: m.id, metadataCategory: m.category}
	if m.source != "" {
		payload[metadataSource] = m.source
	}
	return slack.SlackMetadata{EventType: metadataType, EventPayload: payload}
}

// isIn reports whether metadata, as Slack returns it, carries this mark. The metadata of other apps is
// arbitrary JSON.
func (m mark) isIn(metadata json.RawMessage) bool {
	var found slack.SlackMetadata
	if json.Unmarshal(metadata, &found) != nil || found.EventType != metadataType {
		return false
	}
	text := func(name string) string {
		text, _ := found.EventPayload[name].(string)
		return text
	}
	return m == mark{id: text(metadataID), category: text(metadataCategory), source: text(metadataSource)}
}
