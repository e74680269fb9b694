package feed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/redact"
	"notifier/internal/streams"
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

const (
	// noDelivery stands for the delivery, sequence and consumer sequence in an acknowledgement subject that
	// names no event.
	noDelivery = ".0.0.0."

	ackProbes = 3 // of one subject, if other denials hide the result
)

// MayAcknowledge returns an error if the server denies the acknowledgements of a consumer. The server drops
// them without a reply, so settled events would be delivered again, and posted again after DEDUPE_WINDOW. The
// probe reports progress of an event that does not exist, which changes nothing.
func (c Connection) MayAcknowledge(ctx context.Context, stream, consumer string) error {
	// Which of the forms in parseMetadata the server uses is unknown before it delivers an event.
	for _, prefix := range []string{ackPrefix, ackPrefix + "_._."} {
		denied, err := streams.Request(ctx, func(ctx context.Context) (bool, error) {
			return c.deniesAck(ctx, prefix+stream+"."+consumer)
		})
		if err != nil || !denied {
			return err
		}
	}
	return fmt.Errorf("%w: Permissions Violation for Publish to \"%s%s.%s.>\"",
		nats.ErrPermissionViolation, ackPrefix, stream, consumer)
}

// deniesAck reports whether the server denies acknowledgements with this prefix. nats.go has read a denial
// when the flush ends, but keeps only the latest one.
func (c Connection) deniesAck(ctx context.Context, prefix string) (bool, error) {
	for range ackProbes {
		// The time makes the subject unique: an earlier probe may have left the latest error.
		subject := fmt.Sprintf("%s%s%d.0", prefix, noDelivery, time.Now().UnixNano())
		if err := c.Publish(subject, ackProgress); err != nil {
			return false, err
		}
		if err := c.FlushWithContext(ctx); err != nil {
			return false, err
		}
		latest := c.LastError()
		if !errors.Is(latest, nats.ErrPermissionViolation) {
			return false, nil
		}
		if strings.Contains(latest.Error(), subject) {
			return true, nil
		}
	}
	return false, nil
}

// IsProbe reports whether an error of the connection is about a probe of MayAcknowledge, whose result tells
// the same.
func IsProbe(err error) bool {
	text := err.Error()
	return strings.Contains(text, `for Publish to "`+ackPrefix) && strings.Contains(text, noDelivery)
}
