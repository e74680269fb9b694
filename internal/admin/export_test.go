package admin

import (
	"context"
	"net/http/httptest"
)

// Looks gives what /api/status answers, each time it is called, without a network: for tests with a clock of
// their own.
func Looks(ctx context.Context, status func(ctx context.Context) (any, error)) func() *httptest.ResponseRecorder {
	look := newServer(ctx, Config{}, Probes{Status: status}).Handler
	return func() *httptest.ResponseRecorder {
		response := httptest.NewRecorder()
		look.ServeHTTP(response, httptest.NewRequest("GET", "http://127.0.0.1/api/status", nil))
		return response
	}
}

// ReadyLook gives what /readyz answers, each time it is called, without a network.
func ReadyLook(ctx context.Context, probes Probes) func() *httptest.ResponseRecorder {
	look := newServer(ctx, Config{}, probes).Handler
	return func() *httptest.ResponseRecorder {
		response := httptest.NewRecorder()
		look.ServeHTTP(response, httptest.NewRequest("GET", "http://127.0.0.1/readyz", nil))
		return response
	}
}

// NewServer makes the server without a listener: for tests with a clock of their own.
var NewServer = newServer

// MostConnections is how many connections the server has at a time.
const MostConnections = mostConnections

// Look is the first of Looks.
func Look(ctx context.Context, status func(ctx context.Context) (any, error)) *httptest.ResponseRecorder {
	return Looks(ctx, status)()
}
