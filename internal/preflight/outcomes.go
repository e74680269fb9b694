package preflight

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/outcome/recent"
	"notifier/internal/term"
)

// outcomes looks at the stream of outcomes. A worker does its job without it, so nothing here is a failure.
func (c *streamCheck) outcomes(ctx context.Context) {
	const without = "; events, why and the page will not know what became of events"
	place, err := recent.NewPlace(c.settings.NATS.Stream, c.settings.NATS.Pattern)
	if err != nil {
		c.report.warn("", "outcomes are not recorded: %v", err)
		return
	}
	info, err := c.stream(ctx, place.Stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		c.missing(
			ctx,
			Warn,
			place.Stream,
			place.Subject+".>",
			"take them from it, or set NATS_STREAM to another name",
		)
		return
	case err != nil:
		c.report.warn(requestAdvice(err), "stream %s: %v%s", place.Stream, err, without)
		return
	}
	if mismatch := place.Mismatch(info.Config); mismatch != "" {
		c.report.warn("rename it, or set NATS_STREAM to another name", "%s%s", mismatch, without)
		return
	}
	err = c.client.request(ctx, func(ctx context.Context) error {
		_, err := recent.NewReader(c.client.js.Conn(), place).List(ctx, recent.Filter{Limit: 1})
		return err
	})
	if err != nil {
		c.report.warn(requestAdvice(err), "stream %s cannot be read: %v", place.Stream, err)
		return
	}
	if err := c.mayRecord(ctx, place); err != nil {
		c.report.warn(requestAdvice(err), "outcomes cannot be recorded: %v%s", err, without)
		return
	}
	c.report.ok(
		"stream %s takes %s: %s, %s, %s",
		place.Stream,
		subjectsOf(info.Config),
		term.Count(int(info.State.Msgs), "outcome"),
		boundsOf(info.Config),
		term.Count(info.Config.Replicas, "replica"),
	)
}

// otherStream is the code of the server's error "expected stream does not match", for which the library has
// no name.
const otherStream jetstream.ErrorCode = 10060

// mayRecord publishes what no stream takes, as it expects to be stored in one of another name: the server
// refuses that, unless it denies the publication before.
func (c *streamCheck) mayRecord(ctx context.Context, place recent.Place) error {
	err := c.client.request(ctx, func(ctx context.Context) error {
		_, err := c.client.js.Publish(
			ctx,
			place.Subject+".check",
			nil,
			jetstream.WithExpectStream("not-"+place.Stream),
		)
		return err
	})
	var refused *jetstream.APIError
	if errors.As(err, &refused) && refused.ErrorCode == otherStream {
		return nil
	}
	return err
}
