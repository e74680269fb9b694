package app

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/consume/feed"
	"notifier/internal/consume/letters"
	"notifier/internal/settings"
	"notifier/internal/snapshot"
	"notifier/internal/wait"
)

// Pauses between two lookups of the streams. After failures of a connected worker they grow from streamsSoon,
// because the stream may be about to be created, to streamsRarely: each denied request is a line in the logs of
// the server.
const (
	streamsEvery   = 20 * time.Second
	streamsSoon    = time.Second
	streamsRarely  = 5 * time.Minute
	streamsTimeout = 5 * time.Second
)

// streamLookup looks up how full the streams are, and whether events are unread or stuck.
type streamLookup struct {
	names     []string // events first, then dead letters
	connected func() bool
	info      func(ctx context.Context, name string) (*jetstream.StreamInfo, error)
	stuck     func(ctx context.Context) (feed.StuckLook, error)
	reading   feed.Reading    // without the stream
	looks     feed.StuckLooks // used by run alone

	mu    sync.Mutex
	known []snapshot.Stream
}

// newStreamLookup makes a lookup of the stream of events and the stream of dead letters. The stream of outcomes
// is always full, by design.
func newStreamLookup(connection *nats.Conn, s settings.NATS, namespace string) (*streamLookup, error) {
	js, err := jetstream.New(connection)
	if err != nil {
		return nil, err
	}
	info := func(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
		found, err := js.Stream(ctx, name)
		if err != nil {
			return nil, err
		}
		return found.CachedInfo(), nil
	}
	stuck := func(ctx context.Context) (feed.StuckLook, error) {
		return feed.LookForStuck(ctx, js, s.Stream, s.Consumer)
	}
	return &streamLookup{
		names:     []string{s.Stream, letters.StreamName(s.Stream)},
		connected: connection.IsConnected,
		info:      info,
		stuck:     stuck,
		reading:   feed.Reading{Subject: s.Pattern.String(), Namespace: namespace},
	}, nil
}

// list returns the result of the last lookup, or nil before the first.
func (l *streamLookup) list() []snapshot.Stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known
}

// run looks up the streams until ctx is done.
func (l *streamLookup) run(ctx context.Context) {
	failed := streamsSoon
	for {
		pause := streamsEvery
		switch succeeded := l.look(ctx); {
		case succeeded:
			failed = streamsSoon
		case !l.connected():
			pause, failed = streamsSoon, streamsSoon
		default:
			pause, failed = failed, min(2*failed, streamsRarely)
		}
		if !wait.For(ctx, pause*3/4+rand.N(pause/2)) { // workers spread their lookups
			return
		}
	}
}

// look looks up every stream once, and reports whether that succeeded.
func (l *streamLookup) look(ctx context.Context) bool {
	now := make([]snapshot.Stream, len(l.names))
	succeeded := true
	for i, name := range l.names {
		now[i] = l.one(ctx, name)
		succeeded = succeeded && now[i].Unknown == ""
	}
	if now[0].Unknown == "" {
		succeeded = l.lookAtConsumer(ctx, &now[0]) && succeeded
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = now
	return succeeded
}

// lookAtConsumer sets the unread, stuck and withheld events of the stream of events.
func (l *streamLookup) lookAtConsumer(ctx context.Context, stream *snapshot.Stream) bool {
	look, err := l.stuck(ctx)
	if n, known := l.looks.Add(look); known {
		stream.Stuck = &n
	}
	if err != nil {
		return false
	}
	stream.Unread = &look.Unread
	reading := l.reading
	reading.Stream = look.Stream
	if fault, none, found := reading.Withheld(look.Consumer); found {
		stream.Withheld = &snapshot.Withheld{Why: fault.Problem + "; " + fault.Advice, None: none}
	}
	return true
}

func (l *streamLookup) one(ctx context.Context, name string) snapshot.Stream {
	stream := snapshot.Stream{Name: name, Seen: time.Now().UTC()}
	if !l.connected() { // a request would wait for its timeout
		stream.Unknown = "no connection to NATS"
		return stream
	}
	ctx, cancel := context.WithTimeout(ctx, streamsTimeout)
	defer cancel()
	info, err := l.info(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		stream.Unknown = "there is no such stream"
	case errors.Is(err, context.DeadlineExceeded):
		stream.Unknown = "no reply from NATS, or the request is denied"
	case err != nil:
		stream.Unknown = err.Error()
	default:
		stream.Bytes, stream.Messages = info.State.Bytes, info.State.Msgs
		stream.MaxBytes, stream.MaxMessages = max(0, info.Config.MaxBytes), max(0, info.Config.MaxMsgs)
		stream.DiscardsOld = info.Config.Discard == jetstream.DiscardOld
	}
	return stream
}
