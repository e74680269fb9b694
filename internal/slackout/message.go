package slackout

import (
	"encoding/json"
	"net/url"

	"github.com/slack-go/slack"

	"notifier/internal/event"
	"notifier/internal/slackout/markup"
)

// message is an event as Slack gets it, by either way of posting.
type message struct {
	Channel     string          `json:"channel,omitempty"` // only webhooks of the oldest kind respect it
	Text        string          `json:"text,omitempty"`    // with blocks, notifications show it
	Blocks      json.RawMessage `json:"blocks,omitempty"`
	Attachments json.RawMessage `json:"attachments,omitempty"`
	ThreadTS    string          `json:"thread_ts,omitempty"`
	UnfurlLinks *bool           `json:"unfurl_links,omitempty"`
	UnfurlMedia *bool           `json:"unfurl_media,omitempty"`
}

// maxText is the longest text, in characters, that Slack posts as one message. One slot is one message.
const maxText = 4_000

// buildMessage converts an event into a message, sanitized unless markup is allowed. The error means that
// blocks or attachments are not valid JSON.
func buildMessage(ev event.Event, config Config) (msg message, err error) {
	if config.AllowMarkup {
		return message{
			Text: markup.Cut(ev.Text, maxText), Blocks: ev.Blocks, Attachments: ev.Attachments, ThreadTS: ev.ThreadTS,
		}, nil
	}
	msg = ownText(markup.Text(ev.Text, maxText))
	msg.ThreadTS = ev.ThreadTS
	if len(ev.Blocks) > 0 {
		if msg.Blocks, err = markup.Blocks(ev.Blocks); err != nil {
			return message{}, err
		}
	}
	if len(ev.Attachments) > 0 {
		if msg.Attachments, err = markup.Attachments(ev.Attachments); err != nil {
			return message{}, err
		}
	}
	return msg, nil
}

// ownText returns a message with unfurling off.
func ownText(text string) message {
	no := false
	return message{Text: text, UnfurlLinks: &no, UnfurlMedia: &no}
}

// at returns the message as an option of slack-go for a method of the Web API. It sends blocks and attachments
// as they are, because slack-go's types would drop fields that they do not know.
func (m message) at(method string) slack.MsgOption {
	return slack.UnsafeMsgOptionEndpoint(method, func(values url.Values) {
		set := func(name, value string) {
			if value != "" {
				values.Set(name, value)
			}
		}
		set("text", m.Text)
		set("blocks", string(m.Blocks))
		set("attachments", string(m.Attachments))
		set("thread_ts", m.ThreadTS)
		if m.UnfurlLinks != nil {
			set("unfurl_links", "false")
			set("unfurl_media", "false")
		}
	})
}
