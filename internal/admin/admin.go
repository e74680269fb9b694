// Package admin is the worker's HTTP server for health checks, load balancers, Prometheus and people:
// /healthz, /readyz, /metrics, /api/status, /api/events and the status page.
//
// Anyone on the network may be its client, so it bounds what one of them can take: time, connections, and
// reads of the status (guard.go, connections.go, status.go).
//
// The package knows HTTP. It gets its data from the functions in Probes and does not know where that data
// comes from.
package admin

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"notifier/internal/status/snapshot"
	"notifier/internal/term"
)

// How long a client can keep a connection: without completing a header, without completing a request, without
// reading the answer, and without a further request. The last is longer than Prometheus' default between two
// scrapes.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 20 * time.Second
	idleTimeout       = 75 * time.Second
)

// maxHeaderBytes bounds a request's header; net/http adds 4 KiB to it. The cookies of everything else that a
// person opens on localhost are in it.
const maxHeaderBytes = 32 << 10

// Config is where the server listens and whom it answers.
type Config struct {
	Addr  string   // host:port
	Hosts []string // further names in Host headers that are answered, in the form of ADMIN_HOSTS
	Token string   // what all but /healthz and /readyz ask for; empty: nothing
}

// Probes are the functions from which the server gets its data.
type Probes struct {
	Live func() error // nil while the worker makes progress; depends on no other service
	// why it cannot send events now; empty: it can. Called by one goroutine at a time
	Ready func(ctx context.Context) []string
	// what it waits for, one line each, for people; nil: /readyz has no such lines
	Waits func() []string

	Metrics http.Handler // handles /metrics; nil: /metrics does not exist

	// Status returns what /api/status encodes as JSON, and Page makes the page at / of; nil: neither exists. An
	// error is the reason why the status is unknown; what is known all the same comes with it, an object whose
	// field "error" is the reason, or nil: nothing. It is called at most once in two seconds, after an error
	// once in one, and by one goroutine at a time.
	Status func(ctx context.Context) (any, error)

	// Events returns what /api/events encodes as JSON; nil: it does not exist. An error is the reason why
	// nothing is known. Any number of clients call it at the same time: it waits no longer than the caller's
	// context, and ctx ends with the server. The page takes a Text and a Table from it, which is drawn as those
	// of a page.
	Events func(caller, ctx context.Context, query EventsQuery) (any, error)

	// Page returns what page.html draws of what Status has returned, and of each section that can be opened, by
	// id.
	Page func(status any) (page any, sections map[string]any)
}

// Server serves /healthz and /readyz (200 and "ok", or 503 and the reasons, one line each; /readyz also has
// what the worker waits for, and without the token just "ok" or "not ready"), /metrics, /api/status, and /
// with a live page of the same status for people.
type Server struct {
	http     *http.Server
	stop     context.CancelFunc
	listener net.Listener
	done     chan error
}

// Start listens on config.Addr and serves until Shutdown. The error is that of listening.
func Start(config Config, probes Probes) (*Server, error) {
	listener, err := net.Listen("tcp", config.Addr)
	if err != nil {
		return nil, fmt.Errorf("admin server: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{http: newServer(ctx, config, probes), stop: stop, listener: listener, done: make(chan error, 1)}
	go func() { s.done <- s.http.Serve(listener) }()
	return s, nil
}

// newServer makes the server. ctx ends queries of the status and of readiness.
func newServer(ctx context.Context, config Config, probes Probes) *http.Server {
	g := &guard{names: newNames(config.Addr, config.Hosts)}
	if config.Token != "" {
		hash := sha256.Sum256([]byte(config.Token))
		g.token = &hash
	}
	g.paths = map[string]http.Handler{
		"/healthz": healthz(probes),
		"/readyz":  readyz(ctx, probes, g),
	}
	if probes.Metrics != nil {
		g.paths["/metrics"] = probes.Metrics
	}
	if probes.Status != nil {
		status := newStatusHandler(ctx, probes)
		g.paths["/api/status"], g.paths["/"] = status, status.servePage(probes.Events)
	}
	if probes.Events != nil {
		g.paths["/api/events"] = eventsHandler(ctx, probes.Events)
	}
	c := newConnections()
	return &http.Server{
		Handler:                      g,
		DisableGeneralOptionsHandler: true, // the guard answers OPTIONS *, too
		ReadHeaderTimeout:            readHeaderTimeout,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		ConnContext:                  c.accepted,
		ConnState:                    c.changed,
	}
}

func healthz(probes Probes) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := probes.Live(); err != nil {
			answer(w, []string{err.Error()})
			return
		}
		answer(w, nil)
	})
}

// Readiness is asked for when a client asks, and never what was true before. Who asks at the same time shares
// the answer, because each costs Redis a command, and anybody may ask.
const (
	readyPause   = 10 * time.Millisecond // between two that are asked for
	readyTimeout = 2 * time.Second       // for one; the worker itself takes a second at most
)

// readyz gives the reasons only to those who know the server's name, and the token if there is one: they can
// contain the names of other servers. ctx ends when the server stops; it is not a client's, because one
// answer serves all waiting clients.
func readyz(ctx context.Context, probes Probes, g *guard) http.Handler {
	ready := snapshot.NewShared(
		readyPause,
		readyTimeout,
		func(ctx context.Context) ([]string, error) { return probes.Ready(ctx), nil },
	)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reasons, _, err := ready.GetFor(r.Context(), ctx)
		if err != nil {
			return // the client has disconnected
		}
		if !g.names.has(r.Host) || !g.authorized(r) {
			if len(reasons) > 0 {
				reasons = []string{"not ready"}
			}
			answer(w, reasons)
			return
		}
		answer(w, reasons)
		if probes.Waits != nil {
			for _, line := range probes.Waits() {
				_, _ = fmt.Fprintln(w, term.Printable(line))
			}
		}
	})
}

// answer responds with ok, or with the reasons, a line each. They can contain what other servers answer.
func answer(w http.ResponseWriter, reasons []string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if len(reasons) == 0 {
		_, _ = fmt.Fprintln(w, "ok") // an error means that the client has disconnected
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	for _, reason := range reasons {
		_, _ = fmt.Fprintln(w, term.Printable(reason))
	}
}

// Addr returns the host:port that the server listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Shutdown stops listening and waits for requests in progress, until ctx ends. Queries of the status and of
// readiness are cancelled.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	err := s.http.Shutdown(ctx)
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) && err == nil {
		err = served
	}
	return err
}
