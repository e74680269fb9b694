package kit

import (
	"net"
	"net/http"
	"testing"

	"notifier/internal/devstack/https"
)

// Serve starts an HTTP server on a free port of this machine, and returns its address. It ends with the test,
// and cuts off the requests that are under way then.
func Serve(t testing.TB, handler http.Handler) (addr string) {
	t.Helper()
	return ServeTLS(t, handler, nil)
}

// ServeTLS is Serve with HTTPS, unless secure is nil.
func ServeTLS(t testing.TB, handler http.Handler, secure *https.Server) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Check(t, err)
	server := &http.Server{Handler: handler}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = secure.Serve(server, listener) // always http.ErrServerClosed
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	return listener.Addr().String()
}
