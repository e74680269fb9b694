// Package admin is the worker's HTTP server for health checks, load balancers, Prometheus and people: /healthz, /readyz,
// /metrics, /api/status and the status page.
//
// The package knows HTTP. It gets its data from the functions in Probes and does not know where that data comes from.
package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// readHeaderTimeout bounds how long a client that sends nothing can keep a connection.
const readHeaderTimeout = 5 * time.Second

// Probes are the functions from which the server gets its data.
type Probes struct {
	Live  func() error                       // nil while the worker makes progress; depends on no other service
	Ready func(ctx context.Context) []string // why it cannot send events now; empty: it can
	Waits func() []string                    // what it waits for, one line each, for people; nil: /readyz has no such lines

	Metrics http.Handler // handles /metrics; nil: /metrics does not exist

	// Status returns what /api/status encodes as JSON, and the page at / shows; nil: neither exists. An error is the
	// reason why the status is unknown. It is called at most once a second, and by one goroutine at a time.
	Status func(ctx context.Context) (any, error)
}

// Server serves /healthz and /readyz (200 and "ok", or 503 and the reasons, one line each; /readyz also has what the worker
// waits for), /metrics, /api/status, and / with a live page of the same status for people.
type Server struct {
	http     *http.Server
	stop     context.CancelFunc
	listener net.Listener
	done     chan error
}

// Start listens on addr (host:port) and serves until Shutdown. The error is that of listening.
func Start(addr string, probes Probes) (*Server, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("admin server: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := probes.Live(); err != nil {
			answer(w, []string{err.Error()})
			return
		}
		answer(w, nil)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		answer(w, probes.Ready(r.Context()))
		if probes.Waits != nil {
			for _, line := range probes.Waits() {
				_, _ = fmt.Fprintln(w, line)
			}
		}
	})
	if probes.Metrics != nil {
		mux.Handle("GET /metrics", probes.Metrics)
	}
	ctx, stop := context.WithCancel(context.Background())
	if probes.Status != nil {
		mux.Handle("GET /api/status", &statusCache{ctx: ctx, query: probes.Status})
		mux.HandleFunc("GET /{$}", servePage)
	}
	s := &Server{
		http:     &http.Server{Handler: mux, ReadHeaderTimeout: readHeaderTimeout},
		stop:     stop,
		listener: listener,
		done:     make(chan error, 1),
	}
	go func() { s.done <- s.http.Serve(listener) }()
	return s, nil
}

func answer(w http.ResponseWriter, reasons []string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if len(reasons) == 0 {
		_, _ = fmt.Fprintln(w, "ok") // an error means that the client has disconnected
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = fmt.Fprintln(w, strings.Join(reasons, "\n"))
}

// Addr returns the host:port that the server listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Shutdown stops listening and waits for requests in progress, until ctx ends. A query of the status is cancelled.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	err := s.http.Shutdown(ctx)
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) && err == nil {
		err = served
	}
	return err
}
