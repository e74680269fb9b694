package slackout

import "context"

// PostText makes one attempt to post a text of our own, such as the digest. It posts the text unchanged, as
// Slack markup: the caller escapes any text from outside. Links in it are not unfurled. With a webhook the
// Receipt names no message. Errors are as for Post.
func (p *Poster) PostText(ctx context.Context, channel, text string) (Receipt, error) {
	msg := ownText(text)
	var answer reply
	var err error
	if p.api != nil {
		answer, err = p.attempt(ctx, classifyAPI, func(ctx context.Context) {
			_, _, _ = p.api.PostMessageContext(ctx, channel, msg.at(p.config.APIURL+"chat.postMessage"))
		})
	} else {
		answer, err = p.attempt(ctx, classifyWebhook, func(ctx context.Context) {
			p.postWebhook(ctx, channel, msg)
		})
	}
	if err != nil {
		return Receipt{}, err
	}
	return Receipt{Channel: answer.Channel, TS: answer.TS}, nil
}
