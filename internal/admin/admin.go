// Package admin serves a worker's health, metrics, status and page over HTTP.
//
// Probes and load balancers poll /healthz and /readyz. Prometheus scrapes /metrics, scripts read /api/status
// and /api/events, and operators open /, which shows the same status and refreshes itself.
//
// Any client on the network may reach the server, so each can cost only a bounded amount. Timeouts, a header
// limit and a connection limit bound the resources that clients hold. Beyond the connection limit a new
// connection closes the oldest: a probe is served at once, however many connections others hold. All clients
// together cause one read of the status and one of the newest events in two seconds, a hundred readiness
// checks a second, and four concurrent reads of filtered events. The server only reads, never redirects, and
// allows no other site to embed or fetch its responses. Everything but the probes requires the token, if one
// is set.
//
// The package knows HTTP and HTML. The functions in Probes provide the data.
package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"notifier/internal/cached"
	"notifier/internal/outcome"
	"notifier/internal/snapshot"
	"notifier/internal/status"
)

// Bounds of one connection. The idle timeout exceeds Prometheus' default scrape interval of a minute.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 20 * time.Second
	idleTimeout       = 75 * time.Second
	maxHeaderBytes    = 32 << 10 // cookies of every other service on localhost included; net/http adds 4 KiB
	maxConnections    = 256
)

// Bounds of the reads that requests cause.
const (
	maxAge        = 2 * time.Second // requests within this time share one State, and the newest events
	stateTimeout  = 3 * time.Second
	readyAge      = 10 * time.Millisecond // of a readiness check; a probe soon after a change must see it
	readyTimeout  = 2 * time.Second
	eventsTimeout = 5 * time.Second
	maxFiltered   = 4 // concurrent reads
)

// Config configures a Server.
type Config struct {
	Addr  string // host:port
	Token string // required by all paths but /healthz and /readyz. Empty if none is required
}

// Probes provide the data. All are required, and all but Ready and State are called concurrently.
type Probes struct {
	Live     func() error // nil while the worker makes progress; independent of other services
	Ready    func(ctx context.Context) []string
	Snapshot func() snapshot.Snapshot
	Metrics  http.Handler
	State    func(ctx context.Context) status.State
	Events   func(ctx context.Context, query EventsQuery) (Events, error)
}

// EventsQuery selects recorded outcomes.
type EventsQuery struct {
	Category string // empty for all
	Outcome  string // sent, dropped or dead. Empty for all
	N        int    // the newest N, 1 to 200
}

// Events is the JSON of /api/events.
type Events struct {
	Time   time.Time        `json:"time"`
	Events []outcome.Record `json:"events"`         // newest last; read only
	Note   string           `json:"note,omitempty"` // why there are no events, or why some are missing
}

// OlderOmitted is the note if there are older events.
const OlderOmitted = "older events are not shown"

// Server is a running admin server.
type Server struct {
	http     *http.Server
	stop     context.CancelFunc
	listener net.Listener
	done     chan error
}

// Start listens on config.Addr and serves until Shutdown. It returns an error if it cannot listen.
func Start(config Config, probes Probes) (*Server, error) {
	listener, err := net.Listen("tcp", config.Addr)
	if err != nil {
		return nil, fmt.Errorf("admin server: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{http: newServer(ctx, config, probes), stop: stop, listener: listener, done: make(chan error, 1)}
	go func() { s.done <- s.http.Serve(limit(listener, maxConnections)) }()
	return s, nil
}

// Addr returns the host:port on which the server listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Shutdown stops listening, cancels reads, and waits for open requests until ctx is done.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	err := s.http.Shutdown(ctx)
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) && err == nil {
		err = served
	}
	return err
}

func newServer(ctx context.Context, config Config, probes Probes) *http.Server {
	h := &handlers{
		ctx:    ctx,
		probes: probes,
		token:  sha256.Sum256([]byte(config.Token)),
		open:   config.Token == "",
		ready: cached.New(readyAge, readyTimeout, func(ctx context.Context) ([]string, error) {
			return probes.Ready(ctx), nil
		}),
		state: cached.New(maxAge, stateTimeout, func(ctx context.Context) (status.State, error) {
			return probes.State(ctx), nil
		}),
		newest: cached.New(maxAge, eventsTimeout, func(ctx context.Context) (Events, error) {
			return probes.Events(ctx, EventsQuery{N: maxEvents})
		}),
		filtered: make(chan struct{}, maxFiltered),
	}
	h.paths = map[string]http.HandlerFunc{
		"/healthz":    h.healthz,
		"/readyz":     h.readyz,
		"/metrics":    probes.Metrics.ServeHTTP,
		"/api/status": h.status,
		"/api/events": h.events,
		"/":           h.page,
	}
	return &http.Server{
		Handler:                      h,
		DisableGeneralOptionsHandler: true, // else OPTIONS * bypasses ServeHTTP
		ReadHeaderTimeout:            readHeaderTimeout,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		ConnContext:                  untilClosed,
	}
}

type handlers struct {
	ctx      context.Context // of reads that several requests share; ends with the server
	probes   Probes
	paths    map[string]http.HandlerFunc
	token    [sha256.Size]byte
	open     bool // no token is required
	ready    *cached.Value[[]string]
	state    *cached.Value[status.State]
	newest   *cached.Value[Events] // without a filter
	filtered chan struct{}         // a semaphore
}

// ServeHTTP sets the security headers, checks method and token, and dispatches. http.ServeMux is unsuitable
// because it redirects paths such as //healthz.
func (h *handlers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "expected GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	probe := r.URL.Path == "/healthz" || r.URL.Path == "/readyz"
	if !probe && !h.authorized(r) {
		header.Add("WWW-Authenticate", `Bearer realm="notifier"`)
		header.Add("WWW-Authenticate", `Basic realm="notifier", charset="UTF-8"`) // makes browsers prompt
		http.Error(w, "expected ADMIN_TOKEN as bearer token, or as password of any user", http.StatusUnauthorized)
		return
	}
	handle, found := h.paths[r.URL.Path]
	if !found {
		http.NotFound(w, r)
		return
	}
	handle(w, r)
}

// authorized compares the bearer token or the Basic password with the token. Hashes of equal length keep the
// comparison time constant.
func (h *handlers) authorized(r *http.Request) bool {
	if h.open {
		return true
	}
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch strings.ToLower(scheme) {
	case "bearer":
	case "basic":
		_, given, _ = r.BasicAuth()
	default:
		return false
	}
	hash := sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(hash[:], h.token[:]) == 1
}

// limit returns a listener with at most count open connections: each one more closes the oldest.
func limit(listener net.Listener, count int) net.Listener {
	return &limited{Listener: listener, count: count}
}

type limited struct {
	net.Listener
	count int

	mu   sync.Mutex
	open []*connection // oldest first
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: accepted, listener: l, end: func() {}}
	l.mu.Lock()
	var oldest *connection
	if len(l.open) == l.count {
		oldest = l.open[0]
	}
	l.open = append(l.open, c)
	l.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close() // the client sees the failure
	}
	return c, nil
}

func (l *limited) remove(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.open, c); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
	}
}

// connection is a connection of a limited listener.
type connection struct {
	net.Conn
	listener *limited
	end      context.CancelFunc // of its requests; see untilClosed
}

// Close implements net.Conn. The server calls it again after the listener.
func (c *connection) Close() error {
	c.end()
	c.listener.remove(c)
	return c.Conn.Close()
}

// untilClosed ends the requests of a connection with it. Else a request with an unfinished body would keep
// its handler busy after a newer connection has closed its own.
func untilClosed(ctx context.Context, c net.Conn) context.Context {
	ours, is := c.(*connection)
	if !is {
		return ctx
	}
	ctx, ours.end = context.WithCancel(ctx)
	return ctx
}
