package consume

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
)

// storedLetter is what became of a letter.
type storedLetter struct {
	seq uint64 // in the dead-letter stream; 0: not known
	err error  // why it is not stored
}

// source gives deliveries and takes their acknowledgements. Its errors are about the connection: a delivery whose
// acknowledgement fails is delivered again.
type source interface {
	run(ctx context.Context) error // adds deliveries to the in-flight set until ctx ends
	bound() bool                   // it is subscribed
	keepAlive(ctx context.Context) // keeps the server from redelivering what is in flight
	acknowledge(deliveries []*delivery) error
	terminate(d *delivery, reason string) error
	returnUnsettled(count int, replies []string) error // what was in flight when the worker ended, and where to return it
	publishDeadLetters(ctx context.Context, letters []*nats.Msg) []storedLetter

	// park gives an admitted event back to the server for a while, so that it holds no room here: its admission stays in
	// Redis, and when it is delivered again it goes on without a charge. It reports whether the event is no longer in
	// flight; false: it may not be parked, and stays in flight.
	park(d *delivery, delay time.Duration) bool
	parkingExhausted() (reason string) // why nothing more can be parked; empty: more can, or nobody has tried

	lost() int64                                 // events that arrived and could not be kept
	pending(ctx context.Context) (uint64, error) // events in the stream that no replica has pulled yet
}
