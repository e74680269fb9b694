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

// natsOptions are the ones that workers and publishers share. Errors name no password.
func natsOptions(settings natsConfig, name string) ([]nats.Option, error) {
	options := []nats.Option{nats.Name(name), nats.Timeout(natsTimeout)}
	if settings.tls != nil {
		options = append(options, nats.Secure(settings.tls))
	}
	if settings.credsFile != "" {
		options = append(options, nats.UserCredentials(settings.credsFile))
	}
	if settings.nkeyFile != "" {
		nkey, err := nats.NkeyOptionFromSeed(settings.nkeyFile)
		if err != nil {
			return nil, &usageError{fmt.Sprintf("NATS_NKEY_FILE: %v; expected a file that holds a user seed", err)}
		}
		options = append(options, nkey)
	}
	return options, nil
}

// connectWorker connects for good: an absent server is waited for, a lost one comes back.
func connectWorker(settings natsConfig, log *zap.Logger) (*nats.Conn, error) {
	options, err := natsOptions(settings, "notifier")
	if err != nil {
		return nil, err
	}
	options = append(options,
		nats.MaxReconnects(-1),
		nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(natsReconnectWait),
		nats.ReconnectJitter(natsReconnectJitter, natsReconnectJitter),
		nats.PingInterval(natsPingInterval),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			log.Warn("nats disconnected", zap.Error(err))
		}),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("nats connected again") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("nats reports", zap.Error(err))
		}),
	)
	connection, err := nats.Connect(settings.url, options...)
	if err != nil {
		return nil, fmt.Errorf("NATS_URL: %w", err)
	}
	return connection, nil
}
