// Package slackout posts events to Slack, with a bot token or through an incoming webhook.
//
// Post makes one attempt and says what came of it. It never waits and never tries again: only the caller knows
// about the other replicas, who have to pause too. An error is always an *Error, whose Class tells what to do
// with the event; class.go holds the one table behind it. With a token, a message carries its event's id as Slack
// metadata, and Find looks in the channel whether a post that may have reached Slack has done so.
//
// slack-go builds the requests of the Web API and holds the types of a message. The HTTP client below it is this
// package's own, so that every post has an end, no redirect carries a secret elsewhere, and the verdict rests on
// what was seen on the wire: whether the request went out, the status, the headers, the body.
//
// # Markup
//
// Unless Config.AllowMarkup is set, what an event says cannot act. In texts and mrkdwn objects &, < and > are
// escaped, so <!channel> pings nobody and <url|label> is no link; mrkdwn objects are marked verbatim, since Slack
// would look for names in them by itself. Markdown blocks lose their links, and mentions and links in rich text
// become words. Texts that escaping makes too long for their place are cut. Objects of type plain_text stay as
// they are, for Slack interprets nothing in them. Buttons keep their URLs. Slack is told not to unfurl, so that
// no event can make it fetch and show a page. Neither "parse" nor "link_names" is ever sent: by default Slack
// turns a bare URL into a link to itself, and names into nothing.
package slackout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/slack-go/slack"

	"notifier/internal/event"
)

// Poster posts events to one workspace. It is safe for use by several goroutines.
type Poster struct {
	config  Config
	http    recordingClient
	api     *slack.Client // nil with a webhook
	learned *learned
}

// Receipt is Slack's word that a message was posted.
type Receipt struct {
	Channel string // as Slack answered, else as it was asked for
	TS      string // the message's timestamp, which names it in its channel; empty with a webhook
}

// New returns a Poster, or an error that says what is wrong with the Config and quotes no value of it.
// It connects to nothing.
func New(config Config) (*Poster, error) {
	config, err := config.normalise()
	if err != nil {
		return nil, err
	}
	p := &Poster{config: config, http: newRecordingClient(), learned: newLearned()}
	if config.Token != "" {
		p.api = slack.New(config.Token, slack.OptionAPIURL(config.APIURL), slack.OptionHTTPClient(p.http))
	}
	return p, nil
}

// String describes the Poster without its secrets.
func (p Poster) String() string { return "slackout.Poster{" + p.config.String() + "}" }

// GoString is String: %#v would otherwise print every field.
func (p Poster) GoString() string { return p.String() }

// Format prints String for every verb.
func (p Poster) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(p.String())) }

// Channel is where the event goes: the channel it names, else its category's, else the default. With a webhook
// it may be empty, and Slack may go by the webhook's own channel whatever is asked for.
func (p *Poster) Channel(ev event.Event) string {
	if ev.Channel != "" {
		return ev.Channel
	}
	if channel := p.config.Routes[ev.Category]; channel != "" {
		return channel
	}
	return p.config.Channel
}

// Post makes one attempt to post the event. A nil error means that Slack has it. Any other error is an *Error;
// when the caller's context ended, it wraps the context's error too.
//
// When Slack refuses the metadata, which tokens of the oldest kind may not send, that is no fault of the event: the
// class is Retry, and this and all later messages go without.
func (p *Poster) Post(ctx context.Context, ev event.Event) (Receipt, error) {
	msg, err := buildMessage(ev, p.config.AllowMarkup)
	if err != nil {
		return Receipt{}, &Error{Class: Rejected, Code: "invalid_blocks"}
	}
	channel := p.Channel(ev)
	var answer reply
	if p.api != nil {
		answer, err = p.postMessage(ctx, channel, ev.ID, msg)
	} else {
		answer, err = p.attempt(ctx, classifyWebhook, func(ctx context.Context) {
			p.postWebhook(ctx, msg.webhook(channel))
		})
	}
	if err != nil {
		return Receipt{}, err
	}
	receipt := Receipt{Channel: answer.Channel, TS: answer.TS}
	if receipt.Channel == "" {
		receipt.Channel = channel
	}
	return receipt, nil
}

// Close closes the connections that wait for the next post. Posts in flight go on; later ones connect anew.
func (p *Poster) Close() { p.http.client.CloseIdleConnections() }

// attempt runs one exchange with Slack under the Poster's timeout and has it judged. What send returned would
// say less than the record of the exchange: slack-go takes {"ok":false} for a success, fails on a message it
// posted when it cannot decode the echo of it, and its errors can hold the webhook's URL.
func (p *Poster) attempt(ctx context.Context, judge func(*exchange) (reply, *Error), send func(context.Context)) (reply, error) {
	x := &exchange{}
	limited, cancel := context.WithTimeout(withExchange(ctx, x), p.config.Timeout)
	defer cancel()
	send(limited)
	answer, failure := judge(x)
	if failure == nil {
		return answer, nil
	}
	if x.err != nil { // the caller's own end is told apart from the timeout above
		failure.cause = ctx.Err()
	}
	return reply{}, failure
}

// postMessage posts with the token, with the event's id as metadata unless Slack has refused that before.
func (p *Poster) postMessage(ctx context.Context, channel, id string, msg message) (reply, error) {
	options := msg.options()
	marked := !p.learned.noMetadata.Load()
	if marked {
		options = append(options, slack.MsgOptionMetadata(metadataOf(id)))
	}
	answer, err := p.attempt(ctx, classifyAPI, func(ctx context.Context) {
		_, _, _ = p.api.PostMessageContext(ctx, channel, options...)
	})
	var failure *Error
	switch {
	case err == nil:
		p.learned.posted(channel, answer)
	case marked && errors.As(err, &failure) && codes[failure.Code].metadata:
		p.learned.noMetadata.Store(true)
		failure.Class = Retry
	}
	return answer, err
}

func (p *Poster) postWebhook(ctx context.Context, msg *slack.WebhookMessage) {
	body, err := json.Marshal(msg)
	if err != nil {
		return // nothing was sent; a message is strings and JSON that was decoded before, so this cannot be
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.config.WebhookURL, bytes.NewReader(body))
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	if resp, err := p.http.Do(req); err == nil {
		_ = resp.Body.Close()
	}
}
