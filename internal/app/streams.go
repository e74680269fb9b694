package app

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/status/stats"
)

// How often streams are looked up. One that cannot be looked up, perhaps because that is denied, is asked for
// more and more rarely: each denied request is a line in the logs.
const (
	streamsEvery   = 20 * time.Second
	streamsSoon    = time.Second // after a first failure: the streams may be about to be created
	streamsRarely  = 5 * time.Minute
	streamsTimeout = 5 * time.Second
)

// streamUse knows how full the streams are. What it asks for it asks at a slow pace, and nothing waits for
// it.
type streamUse struct {
	names []string
	info  func(ctx context.Context, name string) (*jetstream.StreamInfo, error)

	mu    sync.Mutex
	known []stats.Stream
}

// newStreamUse is for the stream that is read, and for that of dead letters. The stream of outcomes is made
// to be full.
func newStreamUse(connection *nats.Conn, stream string) (*streamUse, error) {
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
	return &streamUse{names: []string{stream, stream + "_DEAD"}, info: info}, nil
}

// list is what is known; nil: none was looked up yet.
func (u *streamUse) list() []stats.Stream {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.known
}

// run looks the streams up until ctx ends.
func (u *streamUse) run(ctx context.Context) {
	failed := streamsSoon
	for {
		pause := streamsEvery
		if u.look(ctx) {
			failed = streamsSoon
		} else {
			pause, failed = failed, min(2*failed, streamsRarely)
		}
		select {
		case <-time.After(pause*3/4 + rand.N(pause/2)): // replicas do not ask in step
		case <-ctx.Done():
			return
		}
	}
}

// look looks all up, and reports whether that was possible.
func (u *streamUse) look(ctx context.Context) (all bool) {
	now := make([]stats.Stream, len(u.names))
	all = true
	for i, name := range u.names {
		now[i] = u.one(ctx, name)
		all = all && now[i].Unknown == ""
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.known = now
	return all
}

func (u *streamUse) one(ctx context.Context, name string) stats.Stream {
	ctx, cancel := context.WithTimeout(ctx, streamsTimeout)
	defer cancel()
	info, err := u.info(ctx, name)
	stream := stats.Stream{Name: name, Seen: time.Now().UTC()}
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		stream.Unknown = "there is no such stream"
	case errors.Is(err, context.DeadlineExceeded):
		stream.Unknown = "NATS does not answer, or denies it"
	case err != nil:
		stream.Unknown = err.Error()
	default:
		use(&stream, info)
	}
	return stream
}

// use sets how full a stream is: of the bounds that it has the one counts that it is nearest to.
func use(stream *stats.Stream, info *jetstream.StreamInfo) {
	stream.Bytes, stream.Messages = info.State.Bytes, info.State.Msgs
	stream.MaxBytes, stream.MaxMessages = max(0, info.Config.MaxBytes), max(0, info.Config.MaxMsgs)
	stream.DiscardsOld = info.Config.Discard == jetstream.DiscardOld
	if stream.MaxBytes > 0 {
		stream.Used, stream.Bound = share(stream.Bytes, stream.MaxBytes), stats.BoundBytes
	}
	if used := share(stream.Messages, stream.MaxMessages); stream.MaxMessages > 0 && used >= stream.Used {
		stream.Used, stream.Bound = used, stats.BoundMessages
	}
}

func share(of uint64, most int64) float64 {
	if most <= 0 {
		return 0
	}
	return float64(of) / float64(most)
}
