package slackout

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"
)

// maxReply bounds how much of a response is read, in bytes. Slack echoes the message, so a response has at
// most a few hundred kilobytes.
const maxReply = 4 << 20

var (
	errReplyTooLong = errors.New("the response is too long")
	errFailed       = errors.New("the request failed") // all that slack-go gets: the real error holds the URL
)

// exchange records one request and its response.
type exchange struct {
	sent   atomic.Bool // the request may have left this process
	noTLS  atomic.Bool // the last TLS handshake failed
	status int         // 0: no response arrived
	header http.Header
	body   []byte
	err    error // why there is no response or only a part; it can hold the webhook's URL: see innermost
}

type exchangeKey struct{}

func withExchange(ctx context.Context, x *exchange) context.Context {
	ctx = context.WithValue(ctx, exchangeKey{}, x)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// The transport takes another connection only if nothing of the request was processed on the previous
		// one, so each new connection resets the flag.
		GetConn: func(string) { x.sent.Store(false) },
		// Called before the first byte of the body can be sent. No message can be posted without its body, so
		// before this call it was certainly not posted, and after it may have been.
		WroteHeaders:     func() { x.sent.Store(true) },
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) { x.noTLS.Store(err != nil) },
	})
}

// proxyRefusal is the HTTP status with which a proxy refuses to connect to Slack.
type proxyRefusal int

func (p proxyRefusal) Error() string { return fmt.Sprintf("proxy_%d", int(p)) }

// recordingClient sends requests for slack-go and for the webhook, and records each in its context's
// exchange.
//
// It uses HTTP/1.1 alone, so that a connection carries one request at a time. If a connection breaks, the
// result of one post is unknown. With HTTP/2 all posts in flight share a connection, and the results of all of
// them would be unknown. Both find a silently dropped connection within one timeout, HTTP/2 only with pings.
type recordingClient struct{ client *http.Client }

// Bounds of the connections to Slack. A whole request is bounded by Config.Timeout besides.
const (
	maxIdleConns   = 256 // kept for the next posts: SEND_CONCURRENCY's maximum
	connectTimeout = 30 * time.Second
	// A connection that the other side closes at the moment of its use makes the post ambiguous, so idle ones
	// are closed before a load balancer would close them.
	maxIdleTime = 30 * time.Second
)

// newRecordingClient trusts certificates of roots, or of the system if roots is nil.
//
// The transport is no clone of http.DefaultTransport: a clone offers HTTP/2 in its TLS handshakes, whatever its
// Protocols say, and then cannot read what a server of HTTP/2 sends.
func newRecordingClient(roots *x509.CertPool) recordingClient {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: connectTimeout}).DialContext,
		Protocols:           &http.Protocols{},
		TLSClientConfig:     &tls.Config{RootCAs: roots, NextProtos: []string{"http/1.1"}},
		TLSHandshakeTimeout: connectTimeout,
		MaxIdleConns:        maxIdleConns,
		MaxIdleConnsPerHost: maxIdleConns,
		IdleConnTimeout:     maxIdleTime,
		OnProxyConnectResponse: func(
			_ context.Context, _ *url.URL, _ *http.Request, response *http.Response,
		) error {
			if response.StatusCode != http.StatusOK {
				return proxyRefusal(response.StatusCode)
			}
			return nil
		},
	}
	transport.Protocols.SetHTTP1(true)
	return recordingClient{&http.Client{
		Transport: transport,
		// The token is in the body and the webhook's URL is a secret: neither may be sent to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Do sends the request, reads the whole response and records both. The body of the returned response is in
// memory. After a failure it closes the idle connections: they take the same way as the one that failed, so
// they may be dead as well, and each would cost a timeout.
func (c recordingClient) Do(req *http.Request) (*http.Response, error) {
	x, ok := req.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		x = &exchange{}
	}
	defer func() {
		if x.err != nil {
			c.client.CloseIdleConnections()
		}
	}()
	resp, err := c.client.Do(req)
	if err != nil {
		x.err = err
		return nil, errFailed
	}
	x.body, x.err = io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	_ = resp.Body.Close()
	x.status, x.header = resp.StatusCode, resp.Header
	if len(x.body) > maxReply {
		x.body, x.err = nil, errReplyTooLong
	}
	resp.Body = io.NopCloser(bytes.NewReader(x.body))
	return resp, nil
}
