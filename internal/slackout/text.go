package slackout

import (
	"context"

	"github.com/slack-go/slack"
)

// PostText makes one attempt to post a text of our own, such as the digest. It is posted unchanged, in
// Slack's markup: the caller has escaped what others wrote. Links in it are not unfurled. With a webhook the
// Receipt names no message. Errors are as for Post.
func (p *Poster) PostText(ctx context.Context, channel, text string) (Receipt, error) {
	msg := message{text: text}
	var answer reply
	var err error
	if p.api != nil {
		answer, err = p.attempt(ctx, classifyAPI, func(ctx context.Context) {
			_, _, _ = p.api.PostMessageContext(ctx, channel, msg.options()...)
		})
	} else {
		answer, err = p.attempt(ctx, classifyWebhook, func(ctx context.Context) {
			p.postWebhook(ctx, msg.webhook(channel))
		})
	}
	if err != nil {
		return Receipt{}, err
	}
	return Receipt{Channel: answer.Channel, TS: answer.TS}, nil
}

// UpdateText makes one attempt to replace the text of a message that PostText has posted; channel and ts are
// those of its Receipt. Repeating it is harmless. The class Rejected means that this message cannot be
// edited, or no longer; with a webhook none can. Errors are as for Post.
func (p *Poster) UpdateText(ctx context.Context, channel, ts, text string) error {
	if p.api == nil {
		return &Error{Class: Rejected, Code: "not_supported"}
	}
	// Unlike in a post, Slack turns words into mentions here unless "parse" is "none", which
	// MsgOptionParse(false) sends.
	options := append(message{text: text}.options(), slack.MsgOptionParse(false))
	_, err := p.attempt(ctx, classifyAPI, func(ctx context.Context) {
		_, _, _, _ = p.api.UpdateMessageContext(ctx, channel, ts, options...)
	})
	return err
}
