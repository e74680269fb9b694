package slackout

import (
	"context"

	"github.com/slack-go/slack"
)

// Say makes one attempt to post a text of our own, such as the digest. It goes out as it is, in Slack's markup: the
// caller has escaped what others wrote. Links in it are not unfurled. With a webhook the Receipt names no message.
// Errors are as those of Post.
func (p *Poster) Say(ctx context.Context, channel, text string) (Receipt, error) {
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

// Edit makes one attempt to put another text in the place of a message that Say has posted; channel and ts are those of
// its Receipt. Repeating it is harmless. The class Rejected says that this message cannot be edited, or not any more; with
// a webhook none can. Errors are as those of Post.
func (p *Poster) Edit(ctx context.Context, channel, ts, text string) error {
	if p.api == nil {
		return &Error{Class: Rejected, Code: "not_supported"}
	}
	// Here, other than in a post, Slack makes words into mentions unless it is told not to.
	options := append(message{text: text}.options(), slack.MsgOptionParse(false))
	_, err := p.attempt(ctx, classifyAPI, func(ctx context.Context) {
		_, _, _, _ = p.api.UpdateMessageContext(ctx, channel, ts, options...)
	})
	return err
}
