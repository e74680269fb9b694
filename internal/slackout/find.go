package slackout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slack-go/slack"

	"notifier/internal/event"
)

// ErrHistoryUnavailable is wrapped by an error of Find if the history cannot be read and a retry would not
// help. The error's text ends with the reason, one word: Slack's code (missing_scope, not_in_channel, ...),
// http_<status>, invalid_response, or
//
//	webhook            a webhook can only post
//	no_metadata        Slack accepts no metadata from this token, so there is nothing to look for
//	unknown_channel    the channel is configured by name, and no response to a post of this process has named its ID yet
//	too_many_messages  more than Find reads
//	rate_limited       there are more, and this app gets 15 messages a minute
//
// The caller can proceed as it would without Find. A refusal that concerns the token or the method
// (missing_scope and the like) is remembered for the channel, and returned for an hour without a request.
var ErrHistoryUnavailable = errors.New("the history cannot be read")

// Bounds of a search. Slack recommends pages of at most 200 messages. It limits some apps to slowPage
// messages a page and one request a minute. A search is meant for a post of a moment ago: messages beyond the
// first maxPages pages after the event's publication are not read.
const (
	pageSize = 200
	slowPage = 15
	maxPages = 5
)

// clockAllowance is the greatest tolerated lead of the publisher's server clock over Slack's, which stamps
// messages. Synchronised servers are within a second; allowing a minute costs reading a few more messages.
const clockAllowance = time.Minute

// Find checks whether a message of this event, by its id, category and source, is already in the event's
// channel or thread. It makes at most 5 requests, each bounded by Config.Timeout, and never waits or retries.
// It needs a token with the scope to read the history of the channel (channels:history for public ones,
// groups:history for private ones), and the channel's ID, configured or learned from the response to a post.
//
// True means that Find has seen the message; the Receipt names it. False without an error means that Slack
// does not show the message. Slack may delay showing a message it has just accepted.
//
// An error that wraps ErrHistoryUnavailable means that the history cannot be read. Any other is an *Error: a
// temporary failure, or Slack refuses the token altogether (Credentials). Its class is never Ambiguous or
// Rejected. RetryAfter concerns reading alone: Slack limits posts separately. Reading can be refused for a
// long time while posting works, so the caller bounds the wait for Find.
func (p *Poster) Find(ctx context.Context, ev event.Event) (Receipt, bool, error) {
	channel, err := p.historyChannel(p.Channel(ev))
	if err != nil {
		return Receipt{}, false, err
	}
	wanted := markOf(ev)
	oldest := timestamp(ev.Published.Add(-clockAllowance))
	cursor, seen := "", 0
	for number := range maxPages {
		found, err := p.page(ctx, channel, ev.ThreadTS, oldest, cursor)
		if err != nil {
			return Receipt{}, false, p.findError(err, channel, number, seen)
		}
		for _, m := range found.Messages {
			if wanted.isIn(m.Metadata) && p.learned.mayBeOurs(m.BotID) {
				return Receipt{Channel: channel, TS: m.TS}, true, nil
			}
		}
		seen += len(found.Messages)
		if cursor = found.Next.Cursor; cursor == "" {
			return Receipt{}, false, nil
		}
	}
	return Receipt{}, false, noHistory("too_many_messages")
}

// historyChannel returns the ID of a channel whose history can be read, or an error with the reason.
func (p *Poster) historyChannel(channel string) (id string, err error) {
	switch {
	case p.api == nil:
		return "", noHistory("webhook")
	case p.learned.noMetadata.Load():
		return "", noHistory("no_metadata")
	}
	if id = p.learned.id(channel); id == "" {
		return "", noHistory("unknown_channel")
	}
	if code := p.learned.refusal(id); code != "" {
		return "", noHistory(code)
	}
	return id, nil
}

// page is the part of a response that Find uses.
type page struct {
	Messages []struct {
		TS       string          `json:"ts"`
		BotID    string          `json:"bot_id"`
		Metadata json.RawMessage `json:"metadata"`
	} `json:"messages"`
	Next struct {
		Cursor string `json:"next_cursor"`
	} `json:"response_metadata"`
}

// page requests one page of a channel or, with a timestamp, of the thread under that message. Every error is
// an *Error.
func (p *Poster) page(ctx context.Context, channel, thread, oldest, cursor string) (found page, err error) {
	classify := func(x *exchange) (reply, *Error) {
		r, failure := classifyAPI(x)
		if failure == nil && json.Unmarshal(x.body, &found) != nil {
			failure = &Error{Class: Retry, Code: notSlack}
		}
		return r, failure
	}
	_, err = p.attempt(ctx, classify, func(ctx context.Context) {
		// Without "latest" the pages start from the oldest message, so that a post soon after the event's
		// publication is on the first page.
		if thread == "" {
			_, _ = p.api.GetConversationHistoryContext(ctx, &slack.GetConversationHistoryParameters{
				ChannelID: channel, Cursor: cursor, Oldest: oldest, Limit: pageSize, IncludeAllMetadata: true,
			})
		} else {
			_, _, _, _ = p.api.GetConversationRepliesContext(ctx, &slack.GetConversationRepliesParameters{
				ChannelID:          channel,
				Timestamp:          thread,
				Cursor:             cursor,
				Oldest:             oldest,
				Limit:              pageSize,
				IncludeAllMetadata: true,
			})
		}
	})
	return found, err
}

// findError converts a page's error into an error of Find. pages and seen count the pages and messages read
// before it.
func (p *Poster) findError(err error, channel string, pages, seen int) error {
	var failure *Error
	if !errors.As(err, &failure) {
		return err
	}
	m, _ := meaningOf(failure.Code)
	switch {
	case failure.Class == Credentials && m.method:
		p.learned.rememberRefusal(channel, failure.Code) // the token stays the same, so would the refusal
		return noHistory(failure.Code)
	case failure.Class == Rejected, failure.Code == notSlack,
		strings.HasPrefix(failure.Code, "http_3"), strings.HasPrefix(failure.Code, "http_4"):
		// Slack refuses this channel, or a proxy does not know the method. If the proxy blocks posts as well, the
		// post will fail with the cause.
		return noHistory(failure.Code)
	case failure.Class == RetryAfter && pages > 0 && seen <= pages*slowPage:
		// The next search would start from the beginning and be refused in the same place, every time.
		return noHistory(RetryAfter.String())
	case failure.Class == Ambiguous: // matters only for a post: reading changes nothing
		failure.Class = Retry
	}
	return failure
}

func noHistory(reason string) error {
	return fmt.Errorf("slack: %w: %s", ErrHistoryUnavailable, reason)
}

// timestamp formats a time as Slack does: seconds and microseconds since 1970.
func timestamp(t time.Time) string {
	micros := max(0, t.UnixMicro())
	return fmt.Sprintf("%d.%06d", micros/1e6, micros%1e6)
}
