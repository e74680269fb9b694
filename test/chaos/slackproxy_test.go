package chaos

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"notifier/test/kit"
)

// lifeHeader names the worker process that has posted.
const lifeHeader = "X-Worker-Life"

// tokenPrefix begins the tokens that workers are given; what follows names the process.
const tokenPrefix = "xoxb-"

// openDoor starts a server before the fake Slack that notes by the token who posts, which the fake does not keep. It hands
// on everything else as it is, cut connections too, and gives its address. It ends with the test.
func openDoor(t *testing.T, slackURL string) string {
	t.Helper()
	target, err := url.Parse(slackURL)
	kit.Check(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set(lifeHeader, poster(r.Out))
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { reset(w) },
		Transport:    &http.Transport{MaxIdleConnsPerHost: 64},
	}
	t.Cleanup(proxy.Transport.(*http.Transport).CloseIdleConnections)
	return kit.Serve(t, proxy)
}

// poster is the worker process by whose token a request comes, from the header or from the form.
func poster(r *http.Request) string {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if token == "" && r.Body != nil {
		body, _ := io.ReadAll(r.Body) // what is missing is Slack's to complain about
		r.Body = io.NopCloser(bytes.NewReader(body))
		if form, err := url.ParseQuery(string(body)); err == nil {
			token = form.Get("token")
		}
	}
	return strings.TrimPrefix(token, tokenPrefix)
}

// reset ends a connection as the fake Slack has ended its own.
func reset(w http.ResponseWriter) {
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = connection.Close()
}
