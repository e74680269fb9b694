// Package admin is the worker's own small HTTP server: for container health checks, load balancers and people. It is
// handed functions and knows nothing of what is behind them.
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

// readHeaderTimeout bounds what a client that says nothing can hold.
const readHeaderTimeout = 5 * time.Second

// Probes are what the server asks.
type Probes struct {
	Live  func() error                       // nil while the worker makes progress; depends on no neighbour
	Ready func(ctx context.Context) []string // why it cannot send now; empty: it can
	Waits func() []string                    // what it waits for, a line each, for people; nil: nothing is told

	Metrics http.Handler // what /metrics answers; nil: nothing

	// Status is what /api/status gives as JSON, and the page at / shows; nil: neither is there. An error is why it
	// cannot be told. It is called once a second at most, and by one goroutine at a time.
	Status func(ctx context.Context) (any, error)
}

// Server answers /healthz and /readyz (200 and "ok", or 503 and the reasons, a line each; /readyz then what is waited for), /metrics, /api/status, and /
// with a live page of the same for people.
type Server struct {
	http     *http.Server
	stop     context.CancelFunc
	listener net.Listener
	done     chan error
}

// Start listens on addr (host:port) and answers until Shutdown.
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
		mux.Handle("GET /api/status", &statusLook{ctx: ctx, look: probes.Status})
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
		_, _ = fmt.Fprintln(w, "ok") // an error means that the client has gone
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = fmt.Fprintln(w, strings.Join(reasons, "\n"))
}

// Addr is the host:port that it listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Shutdown stops listening and waits for requests under way, until ctx ends. A look at the status is broken off.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	err := s.http.Shutdown(ctx)
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) && err == nil {
		err = served
	}
	return err
}
