package feed

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"notifier/internal/redact"
)

// Connection is a connection to NATS that can explain why it is down.
type Connection struct {
	*nats.Conn
	Why func() error // the latest reason, without secrets; if it is nil, nats.go's last error counts
}

// Down returns an error with the servers and the reason, if it is known.
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

// Unreachable returns Down if there is no connection. It returns when ctx is done at the latest, because nats.go
// blocks while it connects.
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
