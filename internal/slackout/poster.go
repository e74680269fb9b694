// Package slackout posts events to Slack, with a bot token or through an incoming webhook.
//
// Post makes one attempt and returns its result. It never waits and never retries: only the caller knows
// about the other workers, which have to pause as well. An error is always an *Error, whose Class tells the
// caller how to proceed; class.go has the one table of Slack's codes. With a token, a message carries its
// event's id as Slack metadata, and Find searches the channel for a post that may have reached Slack.
//
// slack-go builds the requests of the Web API and has the types of a message. The HTTP client below it is
// this package's own, so that every post ends in time and no redirect sends a secret to another host. The
// result depends on the recorded exchange: whether the request was sent, the status, the headers, the body.
//
// The package knows Slack's API and its markup. It does not know Redis, NATS, limits or other workers.
//
// # Markup
//
// Unless Config.AllowMarkup is set, package markup sanitizes the content of an event, and unfurling is off,
// so that no event can make Slack fetch and show a page. A post never has "parse" or "link_names": by default
// Slack links bare URLs to themselves and does not turn names into mentions.
package slackout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/slack-go/slack"

	"notifier/internal/cause"
	"notifier/internal/event"
)

// Poster posts events to one workspace. It is safe for concurrent use.
type Poster struct {
	config  Config
	http    recordingClient
	api     *slack.Client // nil with a webhook
	learned *learned
}

// Receipt is Slack's confirmation that a message was posted.
type Receipt struct {
	Channel string // from Slack's response, else as it was requested
	TS      string // the message's timestamp, which identifies it in its channel; empty with a webhook
}

// New returns a Poster without connecting. An error describes the invalid setting and quotes no value of
// config.
func New(config Config) (*Poster, error) {
	config, err := config.normalise()
	if err != nil {
		return nil, err
	}
	p := &Poster{config: config, http: newRecordingClient(config.RootCAs), learned: newLearned()}
	if config.Token != "" {
		p.api = slack.New(config.Token, slack.OptionAPIURL(config.APIURL), slack.OptionHTTPClient(p.http))
	}
	return p, nil
}

// String describes the Poster without its secrets.
func (p Poster) String() string { return "slackout.Poster{" + p.config.String() + "}" }

// Format prints String for every verb.
func (p Poster) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(p.String())) }

// Channel returns the channel for an event: the one it names, else its category's, else the default. With a
// webhook it may be empty, and Slack may use the webhook's own channel instead.
func (p *Poster) Channel(ev event.Event) string { return p.config.channel(ev) }

func (c Config) channel(ev event.Event) string {
	if ev.Channel != "" {
		return ev.Channel
	}
	if channel, _, found := c.Routes.Find(ev.Category); found {
		return channel
	}
	return c.Channel
}

// Post makes one attempt to post the event. A nil error means that Slack has it. Any other error is an
// *Error; if the caller's context ended, it wraps the context's error too.
//
// If Slack refuses the metadata, which tokens of the oldest kind may not send, that is not the event's fault:
// the class is Retry, and this and all later messages are posted without metadata.
func (p *Poster) Post(ctx context.Context, ev event.Event) (Receipt, error) {
	msg, err := buildMessage(ev, p.config)
	if err != nil {
		return Receipt{}, &Error{Class: Rejected, Code: "invalid_blocks"}
	}
	channel := p.Channel(ev)
	var answer reply
	if p.api != nil {
		answer, err = p.postMessage(ctx, channel, markOf(ev), msg)
	} else {
		answer, err = p.send(ctx, channel, msg)
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

// Proxy returns the host and port of the proxy that posts go through, or "". A user and a password in its URL
// are left out.
func (p *Poster) Proxy() string {
	target := p.config.APIURL
	if p.api == nil {
		target = p.config.WebhookURL
	}
	request, err := http.NewRequest(http.MethodPost, target, nil)
	if err != nil {
		return ""
	}
	proxy, err := p.http.client.Transport.(*http.Transport).Proxy(request)
	if err != nil || proxy == nil {
		return ""
	}
	return proxy.Host
}

// Close closes idle connections. Posts in flight continue; later ones connect again.
func (p *Poster) Close() { p.http.client.CloseIdleConnections() }

// attempt runs one exchange with Slack under the Poster's timeout and classifies it. It relies on the
// recorded exchange instead of slack-go's result: slack-go takes {"ok":false} for a success, fails after a
// successful post if it cannot decode the echo of the message, and its errors can hold the webhook's URL.
func (p *Poster) attempt(
	ctx context.Context,
	classify func(*exchange) (reply, *Error),
	send func(context.Context),
) (reply, error) {
	x := &exchange{}
	limited, cancel := context.WithTimeout(withExchange(ctx, x), p.config.Timeout)
	defer cancel()
	send(limited)
	answer, failure := classify(x)
	if failure == nil {
		return answer, nil
	}
	p.blameProxy(failure, x)
	failure.Explanation = p.config.explain(failure.Explanation)
	if x.err != nil { // distinguishes the end of the caller's context from the timeout above
		failure.ended = ctx.Err()
	}
	return reply{}, failure
}

// blameProxy names the proxy in a failure without a known cause before the request was sent. The proxy was
// reached then, and the connection through it was not made: it hangs, has closed, or replied with nonsense.
// The error of net/http names no proxy there, and that of a SOCKS proxy names Slack.
func (p *Poster) blameProxy(failure *Error, x *exchange) {
	proxy := p.Proxy()
	if proxy == "" || failure.Cause != "" || x.sent.Load() {
		return
	}
	var text string
	switch failure.Code {
	case "timeout":
		text = "no connection to Slack"
	case "connection_reset", "network_error":
		text = cause.Text(x.err)
	default: // the proxy's own status, TLS with Slack, or the end of the caller's context
		return
	}
	failure.Cause, failure.Explanation = cause.Proxy, "proxy "+proxy+": "+text
}

// postMessage posts with the token. It attaches the event's mark as metadata unless Slack has refused
// metadata before.
func (p *Poster) postMessage(ctx context.Context, channel string, of mark, msg message) (reply, error) {
	var options []slack.MsgOption
	marked := !p.learned.noMetadata.Load()
	if marked {
		options = append(options, slack.MsgOptionMetadata(of.metadata()))
	}
	answer, err := p.send(ctx, channel, msg, options...)
	var failure *Error
	switch {
	case err == nil:
		p.learned.posted(channel, answer)
	case !errors.As(err, &failure):
	case marked && codes[failure.Code].metadata:
		failure.Class, failure.Unmarked = Retry, p.learned.noMetadata.CompareAndSwap(false, true)
	case codes[failure.Code].method && strings.Contains(failure.Explanation, "json-pointer"):
		// The message needs a scope that the token lacks, such as that for videos. Others do not.
		failure.Class, failure.Workspace = Rejected, false
	}
	return answer, err
}

// send posts a message with the token or to the webhook, which takes no options.
func (p *Poster) send(
	ctx context.Context, channel string, msg message, options ...slack.MsgOption,
) (reply, error) {
	if p.api == nil {
		return p.attempt(ctx, classifyWebhook, func(ctx context.Context) { p.postWebhook(ctx, channel, msg) })
	}
	options = append(options, msg.at(p.config.APIURL+"chat.postMessage"))
	return p.attempt(ctx, classifyAPI, func(ctx context.Context) {
		_, _, _ = p.api.PostMessageContext(ctx, channel, options...)
	})
}

func (p *Poster) postWebhook(ctx context.Context, channel string, msg message) {
	msg.Channel = channel
	body, err := json.Marshal(msg)
	if err != nil {
		return // cannot happen: a message consists of strings and valid JSON
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
