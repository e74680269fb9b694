package slackout

import "context"

// PostText makes one attempt to post a text of our own, such as the digest. It posts the text unchanged, as
// Slack markup: the caller escapes any text from outside. Links in it are not unfurled. With a webhook the
// Receipt names no message. Errors are as for Post.
func (p *Poster) PostText(ctx context.Context, channel, text string) (Receipt, error) {
	answer, err := p.send(ctx, channel, ownText(text))
	if err != nil {
		return Receipt{}, err
	}
	return Receipt{Channel: answer.Channel, TS: answer.TS}, nil
}
