// Package http1 makes transports that speak HTTP/1.1 alone, also with servers and proxies that offer HTTP/2.
//
// An HTTP/1.1 connection carries one request at a time. If it breaks, the result of one request is unknown,
// and a request without a response closes it. An HTTP/2 connection carries all requests: if it breaks, the
// results of all of them are unknown. If a firewall drops it silently, each further request is lost to it
// until TCP gives up, a quarter of an hour later, unless pings find that out.
//
// Do not clone http.DefaultTransport instead: the clone's TLSClientConfig still offers h2, even if Protocols
// allow only HTTP/1.1, and net/http then fails with "malformed HTTP response".
package http1

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"time"
)

const (
	// net/http continues to dial after the request has timed out. This ends such attempts.
	connectTimeout = 30 * time.Second
	// A connection that the other side closes at the moment of its use loses a request, so idle ones are closed
	// before a load balancer would close them.
	maxIdleTime = 30 * time.Second
)

// NewTransport returns a transport that uses the proxies of HTTPS_PROXY and HTTP_PROXY. It trusts roots, or
// the system's if roots is nil, and presents the certificates to servers that request one.
func NewTransport(roots *x509.CertPool, certificates ...tls.Certificate) *http.Transport {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dial,
		Protocols:           &http.Protocols{},
		TLSClientConfig:     &tls.Config{RootCAs: roots, Certificates: certificates, NextProtos: []string{"http/1.1"}},
		TLSHandshakeTimeout: connectTimeout,
		IdleConnTimeout:     maxIdleTime,
	}
	transport.Protocols.SetHTTP1(true)
	return transport
}

// dial connects. Its errors have the address as it was given, instead of the IP address that it was resolved
// to: in HTTPS_PROXY an operator looks for the name.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	connection, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, network, address)
	if failed, ok := err.(*net.OpError); ok {
		failed.Addr = given{network, address}
	}
	return connection, err
}

// given is an address that was not resolved.
type given struct{ network, address string }

func (g given) Network() string { return g.network }

func (g given) String() string { return g.address }
