package slackout

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"

	"notifier/internal/http1"
)

// maxReply bounds how much of a response is read, in bytes. Slack echoes the message, so a response has at
// most a few hundred kilobytes.
const maxReply = 4 << 20

var byteOrderMark = []byte("\ufeff")

var (
	errReplyTooLong = errors.New("the response is longer than maxReply")
	errFailed       = errors.New("the request failed") // all that slack-go gets: the real error holds the URL
)

// exchange records one request and its response.
type exchange struct {
	sent   atomic.Bool // the request may have left this process
	noTLS  atomic.Bool // the last TLS handshake failed
	host   string      // where the request went, without a port
	status int         // 0: no response arrived
	header http.Header
	body   []byte
	err    error // why there is no response or only a part; it can hold the webhook's URL: see package cause
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

// recordingClient sends requests for slack-go and for the webhook, by HTTP/1.1 alone, and records each in its
// context's exchange.
type recordingClient struct{ client *http.Client }

// maxIdleConns bounds the connections that are kept for the next posts: SEND_CONCURRENCY's maximum.
const maxIdleConns = 256

// newRecordingClient trusts roots, or the system's if roots is nil.
func newRecordingClient(roots *x509.CertPool) recordingClient {
	transport := http1.NewTransport(roots)
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = maxIdleConns, maxIdleConns
	transport.OnProxyConnectResponse = func(
		_ context.Context, _ *url.URL, _ *http.Request, response *http.Response,
	) error {
		if response.StatusCode != http.StatusOK {
			return proxyRefusal(response.StatusCode)
		}
		return nil
	}
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
	x.host = req.URL.Hostname()
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
	x.body = bytes.TrimPrefix(x.body, byteOrderMark) // some proxies add one, and JSON may not begin with it
	resp.Body = io.NopCloser(bytes.NewReader(x.body))
	return resp, nil
}
