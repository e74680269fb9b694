package main

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
)

// Reconnecting goes on for ever, often enough that a worker goes on within two seconds of the server's return.
const (
	natsReconnectWait   = 500 * time.Millisecond
	natsReconnectJitter = 500 * time.Millisecond
	natsPingInterval    = 20 * time.Second
	natsTimeout         = 5 * time.Second
)

// natsOptions are the ones that all commands share.
func natsOptions(settings natsConfig, name string) []nats.Option {
	options := append([]nats.Option{nats.Name(name), nats.Timeout(natsTimeout)}, settings.auth...)
	if settings.tls != nil {
		options = append(options, nats.Secure(settings.tls))
	}
	return options
}

// insideInbox is where workers get their events and answers, and operators their answers. It is below the _INBOX of
// everybody, so that a permission for _INBOX.> suffices; and others can be denied it, because whoever may listen there
// sees every event on its way to a worker (docs/security.md).
const insideInbox = "_INBOX.notifier"

// insideOptions are natsOptions for workers and operators, as opposed to publishers.
func insideOptions(settings natsConfig, name string) []nats.Option {
	return append(natsOptions(settings, name), nats.CustomInboxPrefix(insideInbox))
}

// connectWorker connects for good: an absent server is waited for, a lost one comes back.
func connectWorker(settings natsConfig, log *zap.Logger) (*nats.Conn, error) {
	options := append(insideOptions(settings, "notifier"),
		nats.MaxReconnects(-1),
		nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(natsReconnectWait),
		nats.ReconnectJitter(natsReconnectJitter, natsReconnectJitter),
		nats.PingInterval(natsPingInterval),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			log.Warn("nats disconnected", zap.Error(err))
		}),
		nats.ConnectHandler(func(c *nats.Conn) { log.Info("nats connected", zap.String("server", c.ConnectedAddr())) }),
		nats.ReconnectHandler(func(c *nats.Conn) { log.Info("nats connected again", zap.String("server", c.ConnectedAddr())) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("nats reports", zap.Error(err))
		}),
	)
	connection, err := nats.Connect(settings.url, options...)
	if err != nil {
		return nil, fmt.Errorf("NATS_URL: %w", err)
	}
	if !connection.IsConnected() {
		log.Warn("nats not connected yet", zap.String("servers", settings.servers()), zap.NamedError("reason", connection.LastError()))
	}
	return connection, nil
}
