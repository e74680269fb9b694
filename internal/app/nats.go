package app

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"notifier/internal/consume/feed"
	"notifier/internal/settings"
)

// The worker reconnects for ever, within two seconds of the server's return. Tests wait less.
var (
	reconnectWait   = 500 * time.Millisecond
	reconnectJitter = 500 * time.Millisecond
)

const pingInterval = 20 * time.Second

// firstLogged bounds the errors of the server that are logged at once. Later ones are logged once a minute.
const firstLogged = 100

// firstError bounds the wait for the reason of a failed first connection.
const firstError = time.Second

// link is the worker's connection to NATS. It keeps the reason of the last failed attempt.
type link struct {
	*nats.Conn
	settings settings.NATS
	log      *zap.Logger

	made   atomic.Pointer[nats.Conn] // nil while the first attempt is under way
	failed chan struct{}             // closed when the first attempt has failed

	mu      sync.Mutex
	latest  error // of the attempts to connect
	refused bool  // an authentication failure was logged since the last connection

	errors rate.Sometimes                   // a denied subject may fail for every event
	denied atomic.Pointer[func(error) bool] // takes the errors of denied requests; see setDenied
}

// connectWorker returns a connection that lasts until it is closed: a server that is unavailable or refuses
// the user is waited for, and a lost connection is made again.
func connectWorker(s settings.NATS, log *zap.Logger) (*link, error) {
	l := &link{settings: s, log: log, failed: make(chan struct{})}
	l.errors.First, l.errors.Interval = firstLogged, time.Minute
	options := append(s.WorkerOptions("notifier"),
		nats.MaxReconnects(-1),
		nats.RetryOnFailedConnect(true),
		nats.NoCallbacksAfterClientClose(), // a worker that stops is not disconnected; "stopped" is its last line
		nats.IgnoreAuthErrorAbort(),        // else the second refusal would close the connection for good
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectJitter, reconnectJitter),
		nats.PingInterval(pingInterval),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			log.Warn("nats disconnected", zap.Error(err))
		}),
		nats.ConnectHandler(func(c *nats.Conn) {
			log.Info("nats connected", zap.String("server", c.ConnectedAddr()))
			l.connected()
		}),
		nats.ReconnectHandler(func(c *nats.Conn) {
			log.Info("nats reconnected", zap.String("server", c.ConnectedAddr()))
			l.connected()
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { l.attemptFailed(err) }),
		nats.ReconnectToServer(l.beforeReconnect),
		nats.ErrorHandler(l.onError),
	)
	connection, err := s.Connect(s.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("NATS_URL: %w", err)
	}
	l.Conn = connection
	l.made.Store(connection)
	if !connection.IsConnected() {
		select {
		case <-l.failed:
		case <-time.After(firstError):
		}
		log.Warn("nats not connected yet", zap.String("servers", s.Servers()), zap.NamedError("reason", l.why()))
	}
	return l, nil
}

// beforeReconnect is called by nats.go before each attempt, under the lock of the connection. It leaves the
// choice of the server to nats.go.
func (l *link) beforeReconnect([]nats.Server, nats.ServerInfo) (*nats.Server, time.Duration) {
	if connection := l.made.Load(); connection != nil {
		l.settings.RenewNKey(&connection.Opts)
	}
	return nil, 0
}

func (l *link) connected() {
	l.mu.Lock()
	l.latest, l.refused = nil, false
	l.mu.Unlock()
}

// attemptFailed notes the reason of a failed attempt to connect.
func (l *link) attemptFailed(err error) {
	if errors.Is(err, nats.ErrNoServers) { // only from the first attempt
		err = errors.New("connection refused")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = err
	select {
	case <-l.failed:
	default:
		close(l.failed)
	}
}

// onError logs errors of the server. A refusal comes with each attempt to connect, so it is logged once.
func (l *link) onError(_ *nats.Conn, _ *nats.Subscription, err error) {
	if isRefusal(err) {
		l.mu.Lock()
		known := l.refused
		l.latest, l.refused = err, true
		l.mu.Unlock()
		if known {
			return
		}
	}
	if feed.IsProbe(err) {
		return
	}
	if denied := l.denied.Load(); denied != nil && (*denied)(err) {
		return
	}
	l.errors.Do(func() { l.log.Warn("nats error", zap.Error(err)) })
}

// setDenied sets a function that may take errors of the connection, by returning true, before they are logged.
func (l *link) setDenied(take func(error) bool) { l.denied.Store(&take) }

// isRefusal reports whether the server refuses the user.
func isRefusal(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrAuthRevoked) || errors.Is(err, nats.ErrAccountAuthExpired)
}

// why returns the latest reason for having no connection.
func (l *link) why() error {
	// nats.go keeps the error of a server that was reached until another one is not reached.
	reason := l.LastError()
	l.mu.Lock()
	if reason == nil || errors.Is(reason, nats.ErrConnectionClosed) {
		reason = l.latest
	}
	l.mu.Unlock()
	text := "no server has answered"
	if reason != nil {
		text = strings.TrimPrefix(settings.ExplainNATS(reason).Error(), "nats: ")
	}
	if isRefusal(reason) {
		text = strings.ToLower(text)
	}
	return errors.New(text)
}
