package kit

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"notifier/internal/devstack/https"
)

// PosterHeader tells the fake Slack behind a SlackProxy which token a request had, because the fake keeps
// headers but not tokens.
const PosterHeader = "X-Posted-By"

// SlackPost is a request for chat.postMessage.
type SlackPost struct {
	At      time.Time
	Channel string
	Text    string
	Status  int // of the response; zero if there was no response
}

// SlackProxy stands before the fake Slack, and speaks HTTPS with HTTP/2 and HTTP/1.1 as Slack does. It
// records every post, also refused ones, forwards cut connections as such, and can withhold the responses to
// one channel.
type SlackProxy struct {
	Addr  string
	Trust map[string]string // the settings by which a worker trusts it

	secure *https.Server

	mu      sync.Mutex
	posts   []SlackPost
	hanging string // channel
}

// StartSlackProxy starts a proxy that ends with the test.
func StartSlackProxy(t testing.TB, slackURL string) *SlackProxy {
	t.Helper()
	target, err := url.Parse(slackURL)
	Check(t, err)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { https.Cut(w) },
		Transport:    transport,
	}
	p := &SlackProxy{}
	p.secure, p.Trust = SlackTLS(t)
	p.Addr = ServeTLS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, proxy) }), p.secure)
	return p
}

// APIURL returns SLACK_API_URL for a worker that reaches the proxy at addr: the proxy's own address, or a
// link's.
func (p *SlackProxy) APIURL(addr string) string { return p.secure.Scheme() + "://" + addr + "/api/" }

func (p *SlackProxy) serve(w http.ResponseWriter, r *http.Request, slack http.Handler) {
	body, _ := io.ReadAll(r.Body) // the fake rejects an incomplete body
	r.Body = io.NopCloser(bytes.NewReader(body))
	form, _ := url.ParseQuery(string(body))
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if token == "" {
		token = form.Get("token")
	}
	r.Header.Set(PosterHeader, token)
	if !strings.HasSuffix(r.URL.Path, "/chat.postMessage") {
		slack.ServeHTTP(w, r)
		return
	}
	post := SlackPost{At: time.Now(), Channel: form.Get("channel"), Text: form.Get("text")}
	defer func() { p.note(post) }()
	if p.hangs(post.Channel) {
		<-r.Context().Done()
		return
	}
	answer := &statusWriter{ResponseWriter: w}
	slack.ServeHTTP(answer, r)
	post.Status = answer.status
}

// statusWriter remembers the status of a response.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (p *SlackProxy) note(post SlackPost) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.posts = append(p.posts, post)
}

// Hang withholds the responses to posts to a channel from now on.
func (p *SlackProxy) Hang(channel string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hanging = channel
}

func (p *SlackProxy) hangs(channel string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hanging != "" && channel == p.hanging
}

// Posts are those so far that which selects, in the order of time.
func (p *SlackProxy) Posts(which func(SlackPost) bool) []SlackPost {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := slices.DeleteFunc(slices.Clone(p.posts), func(post SlackPost) bool { return !which(post) })
	slices.SortFunc(found, func(a, b SlackPost) int { return a.At.Compare(b.At) })
	return found
}
