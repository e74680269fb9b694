package feed

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"notifier/internal/redact"
)

// Connection is a connection to NATS, and why there is none at the moment.
type Connection struct {
	*nats.Conn
	Why func() error // the latest reason, without secrets; nil: what nats.go knows of it
}

// Down names the servers that do not answer, and the reason as far as it is known.
func (c Connection) Down() error {
	why := c.Why
	if why == nil {
		why = c.LastError
	}
	reason := why()
	if reason == nil {
		reason = errors.New("no server has answered")
	}
	return fmt.Errorf("no connection to %s: %w", redact.Servers(c.Servers()), reason)
}

// Unreachable is why there is no connection; nil: there is one. It returns when ctx ends at the latest: while
// nats.go tries a server that does not answer, it does not answer either.
func (c Connection) Unreachable(ctx context.Context) error {
	answer := make(chan error, 1)
	go func() {
		if c.IsConnected() {
			answer <- nil
		} else {
			answer <- c.Down()
		}
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return errors.New("connecting, and no server answers")
	}
}
