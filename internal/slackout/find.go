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

// ErrNoHistory is what Find's error wraps when it cannot look and trying again would not help. The error's text ends
// with the reason, one word: Slack's code (missing_scope, not_in_channel, ...), http_<status>, invalid_response, or
//
//	webhook            a webhook can only post
//	no_metadata        Slack takes no metadata from this token, so there is nothing to look for
//	unknown_channel    the channel is given by name, and no message was posted there yet that told its ID
//	too_many_messages  more than Find looks through
//	rate_limited       there are more, and this app gets 15 messages a minute
//
// The caller can do what it would do without Find. A refusal that lies in the token or the method (missing_scope and
// its like) is remembered for the channel, and for an hour answered without a request.
var ErrNoHistory = errors.New("the history cannot be read")

// Bounds of a look. Slack recommends pages of at most 200 messages, and gives some apps no more than slowPage, at one
// request a minute. A look is meant for a post of a moment ago: what comes later than maxPages of messages after the
// event's publication is not looked at.
const (
	pageSize = 200
	slowPage = 15
	maxPages = 5
)

// clockAllowance is how far the clock that took down when the event was published may be ahead of Slack's, which
// stamps messages. Servers that keep time are within a second; a minute costs a few messages more to look through.
const clockAllowance = time.Minute

// Find looks whether a message with the event's id already stands where the event is to be posted: in its channel, or
// in its thread. It makes at most 5 requests, each bounded by Config.Timeout, and never waits or tries again. It needs
// a token with the scope to read the history of the channel (channels:history for public ones, groups:history for
// private ones), and the channel's ID, in the settings or learned from the answer to a post.
//
// True says that the message stands there, and the Receipt is that of its post. False without an error says that it
// does not, as far as Slack shows: a message that was accepted within the last moments may not be shown yet.
//
// An error that wraps ErrNoHistory says that looking is not possible; any other is an *Error, and says "not now", or
// that Slack refuses the token altogether (Credentials). Its class is never Ambiguous or Rejected. RetryAfter concerns
// looking alone: Slack counts posts apart. Reading can be refused for long while posting works, so the caller bounds
// how long it waits for a look.
func (p *Poster) Find(ctx context.Context, ev event.Event) (Receipt, bool, error) {
	channel, err := p.lookAt(p.Channel(ev))
	if err != nil {
		return Receipt{}, false, err
	}
	mark := markOf(ev.ID)
	oldest := timestamp(ev.Published.Add(-clockAllowance))
	cursor, seen := "", 0
	for number := range maxPages {
		found, err := p.page(ctx, channel, ev.ThreadTS, oldest, cursor)
		if err != nil {
			return Receipt{}, false, p.notSeen(err, channel, number, seen)
		}
		for _, m := range found.Messages {
			if carries(m.Metadata, mark) && p.learned.mayBeOurs(m.BotID) {
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

// lookAt is the ID of a channel whose history may be looked at, or the reason why none may be.
func (p *Poster) lookAt(channel string) (id string, err error) {
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

// page is what Find reads of an answer.
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

// page asks for one page of a channel or, with a timestamp, of the thread under that message. Every error is an *Error.
func (p *Poster) page(ctx context.Context, channel, thread, oldest, cursor string) (found page, err error) {
	judge := func(x *exchange) (reply, *Error) {
		r, failure := classifyAPI(x)
		if failure == nil && json.Unmarshal(x.body, &found) != nil {
			failure = &Error{Class: Retry, Code: "invalid_response"}
		}
		return r, failure
	}
	_, err = p.attempt(ctx, judge, func(ctx context.Context) {
		// Without "latest" the pages go forward from the oldest message, so that a post soon after the event's
		// publication is on the first one.
		if thread == "" {
			_, _ = p.api.GetConversationHistoryContext(ctx, &slack.GetConversationHistoryParameters{
				ChannelID: channel, Cursor: cursor, Oldest: oldest, Limit: pageSize, IncludeAllMetadata: true,
			})
		} else {
			_, _, _, _ = p.api.GetConversationRepliesContext(ctx, &slack.GetConversationRepliesParameters{
				ChannelID: channel, Timestamp: thread, Cursor: cursor, Oldest: oldest, Limit: pageSize, IncludeAllMetadata: true,
			})
		}
	})
	return found, err
}

// notSeen makes the failure of a page, after so many pages and messages, into the answer of Find.
func (p *Poster) notSeen(err error, channel string, pages, seen int) error {
	var failure *Error
	if !errors.As(err, &failure) {
		return err
	}
	m, _ := meaningOf(failure.Code)
	switch {
	case failure.Class == Credentials && m.method:
		p.learned.refused(channel, failure.Code) // the token stays as it is: no need to ask again
		return noHistory(failure.Code)
	case failure.Class == Rejected, failure.Code == "invalid_response",
		strings.HasPrefix(failure.Code, "http_3"), strings.HasPrefix(failure.Code, "http_4"):
		// Slack's word about this channel, or something in between that does not know the method. If it stands
		// before posts as well, the post will tell.
		return noHistory(failure.Code)
	case failure.Class == RetryAfter && pages > 0 && seen <= pages*slowPage:
		// The next look would begin anew and meet the same refusal, for ever.
		return noHistory(RetryAfter.String())
	case failure.Class == Ambiguous: // of a post; reading changes nothing
		failure.Class = Retry
	}
	return failure
}

func noHistory(reason string) error { return fmt.Errorf("slack: %w: %s", ErrNoHistory, reason) }

// timestamp writes a time as Slack does: seconds and microseconds since 1970.
func timestamp(t time.Time) string {
	micros := max(0, t.UnixMicro())
	return fmt.Sprintf("%d.%06d", micros/1e6, micros%1e6)
}
