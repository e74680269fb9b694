package admin

import (
	"context"
	"net/http/httptest"
)

// Looks gives what /api/status answers, each time it is called, without a network: for tests with a clock of their own.
func Looks(ctx context.Context, status func(ctx context.Context) (any, error)) func() *httptest.ResponseRecorder {
	look := &statusCache{ctx: ctx, query: status}
	return func() *httptest.ResponseRecorder {
		response := httptest.NewRecorder()
		look.ServeHTTP(response, httptest.NewRequest("GET", "/api/status", nil))
		return response
	}
}

// Look is the first of Looks.
func Look(ctx context.Context, status func(ctx context.Context) (any, error)) *httptest.ResponseRecorder {
	return Looks(ctx, status)()
}
