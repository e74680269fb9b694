package main

import (
	"errors"

	"github.com/nats-io/nats.go"

	"notifier/internal/settings"
)

// publisherOptions returns the options of the publishing connection. Without -inbox-prefix, an operator's user
// receives replies below the operators' prefix, because the outcomes that -wait reads must not arrive where
// publishers may subscribe. A failed probe selects the publishers' options, and the connection reports why.
func publisherOptions(s settings.NATS, inbox string) []nats.Option {
	const name = "notifier publish"
	options := s.PublisherOptions(name, inbox)
	if inbox != settings.PublisherInbox {
		return options
	}
	ignore := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
	probe, err := s.Connect(s.URL, append(options, ignore, nats.NoReconnect())...)
	if err != nil {
		return options
	}
	defer probe.Close()
	if _, err := probe.SubscribeSync(probe.NewInbox()); err != nil {
		return options
	}
	if err := probe.Flush(); err != nil {
		return options
	}
	if errors.Is(probe.LastError(), nats.ErrPermissionViolation) {
		return s.OperatorOptions(name)
	}
	return options
}
