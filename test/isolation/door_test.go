package isolation

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

	"notifier/test/kit"
)

// request is a post that a worker has made.
type request struct {
	at      time.Time
	channel string
	text    string
	status  int // of the response; 0: there was none
}

// door is a server before the fake Slack that notes every post, also those that are refused, and can leave the posts to one
// channel without an answer.
type door struct {
	url string

	mu       sync.Mutex
	requests []request
	hanging  string // channel
}

// openDoor starts a door, which ends with the test.
func openDoor(t *testing.T, slackURL string) *door {
	t.Helper()
	target, err := url.Parse(slackURL)
	kit.Check(t, err)
	d := &door{}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	d.url = "http://" + kit.Serve(t, d.noting(proxy))
	return d
}

func (d *door) noting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/chat.postMessage") {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		form, formErr := url.ParseQuery(string(body))
		if err != nil || formErr != nil {
			http.Error(w, "no form", http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		noted := request{at: time.Now(), channel: form.Get("channel"), text: form.Get("text")}
		if d.hangs(noted.channel) {
			d.note(noted)
			<-r.Context().Done()
			return
		}
		answer := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(answer, r)
		noted.status = answer.status
		d.note(noted)
	})
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

func (d *door) note(r request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests = append(d.requests, r)
}

// hang leaves the posts to a channel without an answer from now on.
func (d *door) hang(channel string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hanging = channel
}

func (d *door) hangs(channel string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hanging != "" && channel == d.hanging
}

// those are the requests so far that which selects, in the order of time.
func (d *door) those(which func(request) bool) []request {
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []request
	for _, r := range d.requests {
		if which(r) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b request) int { return a.at.Compare(b.at) })
	return found
}

// limited reports whether the request was refused by one of Slack's limits.
func limited(r request) bool { return r.status == http.StatusTooManyRequests }

// show logs the first posts, as evidence for a row that does not meet its bar.
func (d *door) show(t *testing.T) {
	t.Helper()
	const shown = 60
	all := d.those(func(request) bool { return true })
	for _, r := range all[:min(len(all), shown)] {
		t.Logf("%s %s %s: %d", r.at.UTC().Format("15:04:05.000"), r.channel, r.text, r.status)
	}
	t.Logf("%d posts in total", len(all))
}
