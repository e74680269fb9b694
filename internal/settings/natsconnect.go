package settings

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// NATS servers greet in plain text and then begin TLS, or they expect TLS first (handshake_first). A client
// has to know which: nats.go has an option for all attempts of a connection. So a dialer waits for the
// greeting of each server, and sets that option before nats.go reads it. Each attempt finds out anew, which
// suits lists of both kinds, and servers that come back as the other kind.

// greetingPatience is for a greeting that comes one round trip after the connection. Servers that expect TLS
// first close a silent connection after two seconds.
const greetingPatience = 500 * time.Millisecond

var (
	errOtherKind  = errors.New("the server expects TLS before its greeting, or not until then")
	errNoGreeting = errors.New("the server closed the connection without a greeting")
)

// Connect connects to the servers of a URL. With TLS it also reaches servers that expect TLS first.
func (n NATS) Connect(url string, options ...nats.Option) (*nats.Conn, error) {
	if !n.usesTLS(url) {
		if slices.ContainsFunc(schemes(url), isWebSocket) {
			options = append(slices.Clone(options), nats.SetCustomDialer(boundedDialer{timeoutOf(options)}))
		}
		connection, err := nats.Connect(url, options...)
		return connection, ExplainNATS(err)
	}
	// Before a connection exists its option is fixed, so servers of the other kind need another attempt, and
	// a late greeting a third one.
	const attempts = 3
	var reason error
	expected, late := false, false
	for attempt := 1; ; attempt++ {
		greeting := &greeting{dialer: net.Dialer{Timeout: timeoutOf(options)}, expected: expected}
		greeting.late.Store(late)
		with := append(slices.Clone(options), nats.SetCustomDialer(greeting))
		if expected {
			with = append(with, nats.TLSHandshakeFirst())
		}
		connection, err := nats.Connect(url, with...)
		late = greeting.late.Load()
		again := (greeting.otherKind.Load() || late) && attempt < attempts
		if err == nil && (connection.IsConnected() || !again) {
			greeting.connection.Store(connection)
			return connection, nil
		}
		if err == nil { // it would keep retrying in the background
			connection.Close()
		} else if reason == nil || errors.Is(reason, errOtherKind) {
			reason = err
		}
		if !again {
			return nil, ExplainNATS(reason)
		}
		if late { // this attempt began TLS too early, so its error tells nothing
			reason = nil
		}
		expected = !expected
	}
}

// usesTLS reports whether nats.go begins TLS. WebSockets have their own.
func (n NATS) usesTLS(url string) bool {
	schemes := schemes(url)
	if slices.ContainsFunc(schemes, isWebSocket) {
		return false
	}
	return n.hasTLS() || slices.Contains(schemes, "tls")
}

// schemes returns each server's scheme in lower case. checkServers rejects lists that mix WebSockets with
// others.
func schemes(url string) []string {
	var schemes []string
	for server := range strings.SplitSeq(url, ",") {
		scheme, _, _ := strings.Cut(strings.TrimSpace(server), "://")
		schemes = append(schemes, strings.ToLower(scheme))
	}
	return schemes
}

func isWebSocket(scheme string) bool { return scheme == "ws" || scheme == "wss" }

// timeoutOf returns the timeout that the options set for connecting to a server.
func timeoutOf(options []nats.Option) time.Duration {
	all := nats.GetDefaultOptions()
	for _, option := range options {
		_ = option(&all) // nats.Connect reports the error
	}
	return all.Timeout
}

// boundedDialer sets a deadline on WebSocket connections: nats.go bounds the HTTP upgrade, but not the TLS
// handshake before it, so a silent server would block the client forever. nats.go clears the deadline once it
// is connected.
type boundedDialer struct{ timeout time.Duration }

// Dial connects.
func (b boundedDialer) Dial(network, address string) (net.Conn, error) {
	connection, err := net.DialTimeout(network, address, b.timeout)
	if err != nil {
		return nil, err
	}
	if err := connection.SetDeadline(time.Now().Add(b.timeout)); err != nil {
		_ = connection.Close()
		return nil, err
	}
	return connection, nil
}

// ExplainNATS adds advice to the error of a failed connection if nats.go's own text does not help.
func ExplainNATS(err error) error {
	if errors.Is(err, io.EOF) && !errors.Is(err, errNoGreeting) { // with TLS, both kinds of servers were tried
		return fmt.Errorf("%w; if it expects TLS first (handshake_first), use tls:// in NATS_URL", err)
	}
	return err
}

// greeting is the dialer of one connection.
type greeting struct {
	dialer   net.Dialer
	expected bool // whether the connection begins with TLS, before its first attempt has ended

	connection atomic.Pointer[nats.Conn] // nil until then
	otherKind  atomic.Bool               // a server was met that is not as expected
	late       atomic.Bool               // a server greeted after greetingPatience
}

// Dial connects. nats.go holds the lock of the connection meanwhile, so its options may be changed.
func (g *greeting) Dial(network, address string) (net.Conn, error) {
	dialled, err := g.dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	greeted := &greetedConn{Conn: dialled, greeting: g}
	if err := greeted.listen(); err != nil {
		_ = dialled.Close() // the first error is the reason
		return nil, err
	}
	if connection := g.connection.Load(); connection != nil {
		connection.Opts.TLSHandshakeFirst = greeted.silent
	} else if greeted.silent != g.expected {
		g.otherKind.Store(true)
		_ = dialled.Close()
		return nil, errOtherKind
	}
	return greeted, nil
}

// greetedConn replays the bytes that listen has read ahead.
type greetedConn struct {
	net.Conn
	greeting *greeting
	ahead    []byte
	silent   bool // the server waits for TLS
}

// listen waits for the greeting.
func (c *greetedConn) listen() error {
	patience := greetingPatience
	if c.greeting.late.Load() {
		patience = NATSTimeout
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	buffer := make([]byte, 1024)
	n, err := c.Conn.Read(buffer)
	c.ahead, c.silent = buffer[:n], errors.Is(err, os.ErrDeadlineExceeded)
	if n > 0 || c.silent {
		return c.SetReadDeadline(time.Time{})
	}
	c.greeting.late.Store(false) // nor does this server greet late
	return fmt.Errorf("%w: %w", errNoGreeting, err)
}

// Read returns the bytes that were read ahead first. A greeting instead of TLS means that the wait was too
// short.
func (c *greetedConn) Read(to []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(to, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	n, err := c.Conn.Read(to)
	if c.silent && n > 0 {
		c.silent = false
		c.greeting.late.Store(strings.HasPrefix(string(to[:n]), "INFO"))
	}
	return n, err
}
