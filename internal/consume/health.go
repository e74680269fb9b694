package consume

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// What others ask of a running worker: is it alive, is it ready, what does it wait for, what has it lost.

func (w *Worker) stamp() { w.progress.Store(time.Now().UnixNano()) }

// stalledAfter is how long the loop may show no sign of life. It shows one at least every few seconds, whatever it
// waits for.
const stalledAfter = 30 * time.Second

// Live is nil while the loop makes progress. It depends on no neighbour: waiting for one is progress.
func (w *Worker) Live() error {
	if silence := time.Since(time.Unix(0, w.progress.Load())); silence > stalledAfter {
		return fmt.Errorf("the loop has made no progress for %s", silence.Round(time.Second))
	}
	return nil
}

// Ready lists why this worker cannot send at the moment; empty: it can. It asks Redis, and answers within a second.
func (w *Worker) Ready(ctx context.Context) []string {
	reasons := w.waits.reasons(waitNATS, waitConsumer, waitRedis, waitCredentials, waitDeadLetter)
	if !w.running.Load() || (!w.source.bound() && len(reasons) == 0) {
		reasons = append(reasons, "worker: starting or stopping")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if missing := unreachable(ctx, w.connection()); missing != "" && len(w.waits.reasons(waitNATS)) == 0 {
		reasons = append(reasons, waitNATS+": "+missing)
	}
	if len(w.waits.reasons(waitRedis)) == 0 {
		if err := w.limiter.Ready(ctx); err != nil {
			reasons = append(reasons, waitRedis+": "+err.Error())
		}
	}
	return reasons
}

// unreachable says that there is no connection; empty: there is one. It answers until ctx ends: while nats.go tries a
// server that does not answer, it does not answer either.
func unreachable(ctx context.Context, connection *nats.Conn) string {
	answer := make(chan string, 1)
	go func() {
		if connection.IsConnected() {
			answer <- ""
		} else {
			answer <- "no connection to " + RedactServers(connection.Servers())
		}
	}()
	select {
	case missing := <-answer:
		return missing
	case <-ctx.Done():
		return "connecting, and no server answers"
	}
}

// Lost is how many events came in and were lost, which happens with Core alone: they came faster than they could be
// handled, or were held when the worker ended.
func (w *Worker) Lost() int64 { return w.source.lost() }

// Holds is how many events are in hand: everything that has come in and is not settled.
func (w *Worker) Holds() int { return w.hand.size() }

// Waits lists what is waited for at the moment, in alphabetical order.
func (w *Worker) Waits() []Wait { return w.waits.list() }

// Pending is how many events stand in the stream that nobody has taken yet; 0 with Core. It asks NATS.
func (w *Worker) Pending(ctx context.Context) (uint64, error) { return w.source.pending(ctx) }

// Unpublished is how many dropped events could not be republished to Settings.DroppedSubject.
func (w *Worker) Unpublished() int64 {
	if w.archive == nil {
		return 0
	}
	return w.archive.unpublished.Load()
}

// RefusedChannels are the channels that refuse everything at the moment, each with Slack's code; see channels.
func (w *Worker) RefusedChannels() map[string]string { return w.channels.list() }
