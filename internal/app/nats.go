package app

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"notifier/internal/settings"
)

// The worker reconnects for ever, often enough to go on within two seconds of the server's return.
const (
	reconnectWait   = 500 * time.Millisecond
	reconnectJitter = 500 * time.Millisecond
	pingInterval    = 20 * time.Second
)

// connectWorker returns a connection that lasts until it is closed: a server that is unavailable is waited for, and a
// lost connection is made again.
func connectWorker(s settings.NATS, log *zap.Logger) (*nats.Conn, error) {
	options := append(s.WorkerOptions("notifier"),
		nats.MaxReconnects(-1),
		nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectJitter, reconnectJitter),
		nats.PingInterval(pingInterval),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			log.Warn("nats disconnected", zap.Error(err))
		}),
		nats.ConnectHandler(func(c *nats.Conn) { log.Info("nats connected", zap.String("server", c.ConnectedAddr())) }),
		nats.ReconnectHandler(func(c *nats.Conn) { log.Info("nats reconnected", zap.String("server", c.ConnectedAddr())) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("nats error", zap.Error(err))
		}),
	)
	connection, err := nats.Connect(s.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("NATS_URL: %w", err)
	}
	if !connection.IsConnected() {
		log.Warn("nats not connected yet", zap.String("servers", s.Servers()), zap.NamedError("reason", connection.LastError()))
	}
	return connection, nil
}
