package slackout

import (
	"encoding/json"

	"notifier/internal/event"
	"notifier/internal/slackout/markup"
)

// Preview describes the message that Post would send.
type Preview struct {
	Channel     string // empty if it is the webhook's own, or if the Config names none
	Text        string
	Cut         bool            // Text ends with the count of characters that are missing
	Blocks      json.RawMessage // nil if empty
	Attachments json.RawMessage // nil if empty
}

// Preview returns the message that Post would send. The Config needs no credentials. The error means that blocks or
// attachments are not valid JSON.
func (c Config) Preview(ev event.Event) (Preview, error) {
	msg, err := buildMessage(ev, c)
	if err != nil {
		return Preview{}, err
	}
	return Preview{
		Channel: c.channel(ev), Text: msg.Text, Blocks: msg.Blocks, Attachments: msg.Attachments,
		Cut: msg.Text != uncut(ev.Text, c),
	}, nil
}

// uncut returns the text of a message without a limit.
func uncut(text string, c Config) string {
	if c.AllowMarkup {
		return text
	}
	return markup.Text(text, 8*len(text)+maxText) // escaping makes it at most five times as long
}
