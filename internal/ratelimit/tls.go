package ratelimit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"slices"

	"github.com/redis/go-redis/v9"
)

// mergeTLS adds our certificates to the configuration that go-redis derived from the URL, which has the
// server's name.
func mergeTLS(fromURL, ours *tls.Config) *tls.Config {
	if fromURL == nil || ours == nil {
		return fromURL
	}
	merged := fromURL.Clone()
	merged.RootCAs, merged.Certificates = ours.RootCAs, ours.Certificates
	return merged
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialEach returns a dialer for the servers of a Cluster, and for Sentinels and the servers that they name.
// It returns nil without TLS, which leaves dialing to go-redis. With TLS go-redis would verify all of them by
// the first host of the URL.
func (p patience) dialEach(config *tls.Config, parsed *url.URL) dialer {
	if config == nil {
		return nil
	}
	hosts := hostsOf(parsed)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		server := &redis.Options{DialTimeout: p.dial, TLSConfig: verifyEach(config, addr, hosts)}
		connection, err := redis.NewDialer(server)(ctx, network, addr)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", addr, err)
		}
		return connection, nil
	}
}

// hostsOf lists the hosts that a URL names, the first one first.
func hostsOf(parsed *url.URL) []string {
	hosts := []string{parsed.Hostname()}
	for _, addr := range parsed.Query()["addr"] {
		if host, _, err := net.SplitHostPort(addr); err == nil {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// verifyEach returns the configuration for one server. Its certificate must lead to a trusted authority, as
// always. It must be valid for the dialled name or address, or for a host of the URL. The latter admits
// servers that share a certificate, and servers with names that announce addresses. It adds no trust: a
// server that proves to be a host of the URL can announce itself as the server with the keys anyway.
func verifyEach(config *tls.Config, addr string, hosts []string) *tls.Config {
	own, _, err := net.SplitHostPort(addr)
	if err != nil {
		own = addr
	}
	server := config.Clone()
	if net.ParseIP(own) == nil {
		server.ServerName = own // else it stays the URL's, because an address cannot be sent
	}
	if config.InsecureSkipVerify { // skip_verify in the URL
		return server
	}
	// The verification of crypto/tls knows a single name. VerifyConnection is called in each handshake.
	server.InsecureSkipVerify = true
	server.VerifyConnection = func(state tls.ConnectionState) error {
		return verify(state.PeerCertificates, config.RootCAs, append([]string{own}, hosts...))
	}
	return server
}

// verify is the verification of crypto/tls for several names. If the certificate is valid for none of them,
// the error names the first.
func verify(chain []*x509.Certificate, roots *x509.CertPool, names []string) error {
	options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, certificate := range chain[1:] {
		options.Intermediates.AddCert(certificate)
	}
	_, err := chain[0].Verify(options)
	if err == nil {
		if slices.ContainsFunc(names, func(name string) bool { return chain[0].VerifyHostname(name) == nil }) {
			return nil
		}
		err = chain[0].VerifyHostname(names[0])
	}
	return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
}
