package consume

import (
	"context"

	"github.com/nats-io/nats.go"
)

// source hands out deliveries and takes their acknowledgements. Its errors are about the connection: a delivery whose
// acknowledgement fails is delivered again.
type source interface {
	run(ctx context.Context) error // adds deliveries to the in-flight set until ctx ends
	bound() bool                   // it is subscribed
	keepAlive(ctx context.Context) // keeps the server from redelivering what is in flight
	acknowledge(deliveries []*delivery) error
	terminate(d *delivery, reason string) error
	returnUnsettled(count int, replies []string) error // what was in flight when the worker ended, and where to return it
	publishDeadLetters(ctx context.Context, letters []*nats.Msg) error
	lost() int64                                 // events that arrived and could not be kept
	pending(ctx context.Context) (uint64, error) // events in the stream that no replica has pulled yet
}
