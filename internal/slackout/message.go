package slackout

import (
	"encoding/json"

	"github.com/slack-go/slack"

	"notifier/internal/event"
	"notifier/internal/slackout/markup"
)

// message is an event as it is posted, in either way of posting.
type message struct {
	text     string
	blocks   []slack.Block
	threadTS string
	unfurl   bool // Slack may fetch the links in it
}

// maxText is how many characters of a message's text Slack keeps.
const maxText = 40_000

// buildMessage converts an event into a message, neutralised unless markup is allowed. It fails if the
// event's blocks are not a JSON array, or cannot be neutralised.
func buildMessage(ev event.Event, config Config) (message, error) {
	msg := message{threadTS: ev.ThreadTS, unfurl: config.AllowMarkup}
	if config.AllowMarkup {
		msg.text = markup.CutTrusted(ev.Text, maxText)
	} else {
		msg.text = config.LinkHosts.Text(ev.Text, maxText)
	}
	if len(ev.Blocks) == 0 {
		return msg, nil
	}
	blocks := ev.Blocks
	if !config.AllowMarkup {
		var err error
		if blocks, err = config.LinkHosts.Blocks(blocks); err != nil {
			return message{}, err
		}
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(blocks, &parts); err != nil {
		return message{}, err
	}
	for _, part := range parts {
		msg.blocks = append(msg.blocks, rawBlock(part))
	}
	return msg, nil
}

// options returns the message for chat.postMessage. With blocks, the text is what notifications show.
func (m message) options() []slack.MsgOption {
	var options []slack.MsgOption
	if m.text != "" {
		options = append(options, slack.MsgOptionText(m.text, false)) // escaped here already, or not at all
	}
	if len(m.blocks) > 0 {
		options = append(options, slack.MsgOptionBlocks(m.blocks...))
	}
	if m.threadTS != "" {
		options = append(options, slack.MsgOptionTS(m.threadTS))
	}
	if !m.unfurl {
		options = append(options, slack.MsgOptionDisableLinkUnfurl(), slack.MsgOptionDisableMediaUnfurl())
	}
	return options
}

// webhook returns the message for an incoming webhook. Only webhooks of the oldest kind respect the channel.
func (m message) webhook(channel string) *slack.WebhookMessage {
	msg := &slack.WebhookMessage{Channel: channel, Text: m.text, ThreadTimestamp: m.threadTS}
	if len(m.blocks) > 0 {
		msg.Blocks = &slack.Blocks{BlockSet: m.blocks}
	}
	if !m.unfurl {
		no := false
		msg.UnfurlLinks, msg.UnfurlMedia = &no, &no
	}
	return msg
}

// rawBlock is a block that is posted unchanged. slack-go's own types have only the fields known when they
// were written.
type rawBlock json.RawMessage

func (b rawBlock) head() (h struct {
	Type string `json:"type"`
	ID   string `json:"block_id"`
}) {
	_ = json.Unmarshal(b, &h)
	return h
}

// BlockType implements slack.Block.
func (b rawBlock) BlockType() slack.MessageBlockType { return slack.MessageBlockType(b.head().Type) }

// ID implements slack.Block.
func (b rawBlock) ID() string { return b.head().ID }

// MarshalJSON returns the block unchanged.
func (b rawBlock) MarshalJSON() ([]byte, error) { return b, nil }
