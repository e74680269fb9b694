package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/consume/letters"
	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/internal/settings"
)

// natsTimeout is how long why waits for NATS.
const natsTimeout = 10 * time.Second

// recorded is what NATS knows of the events with an id.
type recorded struct {
	outcomes []recent.Outcome // the latest first
	// those of other categories, where there are none of the category that is asked for
	elsewhere []recent.Outcome
	err       error // why these are not known; nil also where there is no stream of them yet
	// where an event can be: without an outcome, or a dead one; nil: nothing waits there
	unread    *unread
	unreadErr error    // why that is not known
	gone      []uint64 // letters of these outcomes that do not exist any more, as far as that is known
}

// unread is what waits in the stream of events.
type unread struct {
	Stream   string    `json:"stream"`
	Events   uint64    `json:"events"`          // that no worker has read
	Read     int       `json:"read,omitempty"`  // that workers have read, and not settled
	Oldest   time.Time `json:"oldest,omitzero"` // when the oldest unread one was stored
	LastRead time.Time `json:"last_read,omitzero"`
}

// askNATS reads the outcomes of the events with an id, and what waits in the stream of events where there are
// none, or one that is dead: it can be replayed.
func askNATS(ctx context.Context, id, category string) (r recorded) {
	ctx, cancel := context.WithTimeout(ctx, natsTimeout)
	defer cancel()
	r.err = readOutcomes(ctx, "notifier why", func(ctx context.Context, from outcomeSource) error {
		answer, err := from.reader.List(ctx, recent.Filter{EventID: id, Category: category})
		r.outcomes = answer.Outcomes
		if err != nil && !errors.Is(err, recent.ErrNoStream) {
			return fmt.Errorf("stream %s: %w", from.place.Stream, err)
		}
		if len(r.outcomes) == 0 && category != "" {
			answer, _ = from.reader.List(ctx, recent.Filter{EventID: id}) // what fails is known from the first
			r.elsewhere = answer.Outcomes
		}
		died := func(o recent.Outcome) bool { return o.Outcome == outcome.Dead }
		if len(r.outcomes) == 0 || slices.ContainsFunc(r.outcomes, died) {
			r.unread, r.unreadErr = readUnread(ctx, from.connection, from.settings)
		}
		r.gone = goneLetters(ctx, from, r.outcomes)
		return nil
	})
	return r
}

// goneLetters are the letters of outcomes that do not exist any more. Not everybody may ask for letters, so
// those that cannot be asked for are left out.
func goneLetters(ctx context.Context, from outcomeSource, outcomes []recent.Outcome) (gone []uint64) {
	if !slices.ContainsFunc(outcomes, func(o recent.Outcome) bool { return o.LetterSeq > 0 }) {
		return nil
	}
	stream, err := letters.Open(ctx, from.connection, from.settings.Stream, from.settings.Pattern)
	if err != nil {
		return nil
	}
	for _, o := range outcomes {
		if o.LetterSeq == 0 {
			continue
		}
		if _, err := stream.Get(ctx, o.LetterSeq); errors.Is(err, letters.ErrNoLetter) {
			gone = append(gone, o.LetterSeq)
		} else if err != nil {
			return gone
		}
	}
	return gone
}

// readUnread asks what waits in the stream of events; nil: nothing. When the oldest was stored is known to
// those alone who may read events.
func readUnread(ctx context.Context, connection *nats.Conn, s settings.NATS) (*unread, error) {
	js, err := jetstream.New(connection)
	if err != nil {
		return nil, err
	}
	consumer, err := js.Consumer(ctx, s.Stream, s.Consumer)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, nil // nothing was ever published
	case context.Cause(ctx) != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("consumer %s of stream %s: %w", s.Consumer, s.Stream, err)
	}
	info := consumer.CachedInfo()
	if info.NumPending == 0 && info.NumAckPending == 0 {
		return nil, nil
	}
	u := &unread{Stream: s.Stream, Events: info.NumPending, Read: info.NumAckPending}
	if info.Delivered.Last != nil {
		u.LastRead = *info.Delivered.Last
	}
	if u.Events > 0 {
		u.Oldest = oldestUnread(ctx, connection, s, info.Delivered.Stream)
	}
	return u, nil
}

// oldestUnread is when the first event after a sequence was stored; zero: this user may not know.
func oldestUnread(ctx context.Context, connection *nats.Conn, s settings.NATS, after uint64) time.Time {
	request, err := json.Marshal(map[string]any{"seq": after + 1, "next_by_subj": s.Pattern.String()})
	if err != nil {
		return time.Time{}
	}
	answer, err := connection.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+s.Stream, request)
	if err != nil {
		return time.Time{}
	}
	var found struct {
		Message struct {
			Time time.Time `json:"time"`
		} `json:"message"`
	}
	_ = json.Unmarshal(answer.Data, &found) // an error of the server has no time
	return found.Message.Time
}
