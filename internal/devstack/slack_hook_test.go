package devstack

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// Replies of the Web API, as fake.send formats them.
const (
	posted   = "200 ok"
	limited  = ` {"error":"ratelimited","ok":false}`
	archived = `200 {"error":"is_archived","ok":false}`
	revoked  = `200 {"error":"token_revoked","ok":false}`
)

// fake is a fake Slack with a clock that the test sets.
type fake struct {
	*testing.T
	*Slack
	client *http.Client
	mu     sync.Mutex
	time   time.Time
}

func startFake(t *testing.T) *fake {
	t.Helper()
	s, client := startSlack(t)
	f := &fake{T: t, Slack: s, client: client, time: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	s.now = func() time.Time {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.time
	}
	return f
}

func (f *fake) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.time = f.time.Add(d)
}

func (f *fake) setLimit(limit string, retryAfter time.Duration) {
	f.Helper()
	parsed, err := ratelimit.ParseLimit(limit)
	kit.Check(f.T, err)
	f.SetLimit(parsed, retryAfter)
}

// call posts a form and formats the response as status, Retry-After and body. It returns "reset" if there was
// no response.
func (f *fake) call(url string, form url.Values) string {
	f.Helper()
	response, err := f.client.PostForm(url, form)
	if err != nil {
		return "reset"
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	kit.Check(f.T, err)
	text := fmt.Sprint(response.StatusCode)
	if after := response.Header.Get("Retry-After"); after != "" {
		text += " after " + after
	}
	if strings.Contains(string(body), `"ok":true`) {
		return text + " ok"
	}
	return text + " " + strings.TrimSpace(string(body))
}

func (f *fake) method(name, channel string) string {
	f.Helper()
	return f.call(f.APIURL()+name, url.Values{"token": {"xoxb-1"}, "channel": {channel}, "text": {"hi"}, "ts": {"1.2"}})
}

// post posts through the Web API, hook through the webhook.
func (f *fake) post(channel string) string {
	f.Helper()
	return f.method("chat.postMessage", channel)
}

func (f *fake) hook(channel string) string {
	f.Helper()
	payload := fmt.Sprintf(`{"text":"hi","channel":%q}`, channel)
	return f.call(f.WebhookURL(), url.Values{"payload": {payload}})
}

// expect sends requests in a row and compares the responses.
func (f *fake) expect(send func(channel string) string, channel string, want ...string) {
	f.Helper()
	for i, w := range want {
		if got := send(channel); got != w {
			f.Errorf("%s, request %d: %q, want %q", channel, i+1, got, w)
		}
	}
}

func TestResponses(t *testing.T) {
	f := startFake(t)
	for _, test := range []struct {
		response Response
		want     string
		accepted bool
	}{
		{Response{}, posted, true},
		{Response{Status: 503}, "503 Service Unavailable", false},
		{Response{Status: 500, Accept: true}, "500 Internal Server Error", true},
		{Response{Code: "is_archived"}, archived, false},
		{Response{RetryAfter: "7"}, "429 after 7" + limited, false},
		{Response{Body: "<html>"}, "200 <html>", false},
		{Response{Reset: true}, "reset", false},
		{Response{Accept: true, Reset: true}, "reset", true},
	} {
		f.Respond(Next(test.response))
		before := f.Accepted()
		f.expect(f.post, "C1", test.want)
		if accepted := f.Accepted() > before; accepted != test.accepted {
			t.Errorf("%+v: accepted %t, want %t", test.response, accepted, test.accepted)
		}
		f.expect(f.post, "C1", posted) // Next is used up
	}
	if got := f.status().Refused; got != 5 {
		t.Errorf("%d refused, want 5", got)
	}
	f.Respond(Next(Response{Hang: true}))
	go f.post("C1")
	kit.Eventually(t, "it hangs", func() bool { return f.status().Refused == 6 })
	// Close, at the end of the test, ends the request.
}

func TestHooksDecideByTheRequest(t *testing.T) {
	f := startFake(t)
	f.Respond(First(
		Next(Response{Code: "is_archived"}, Response{}),
		NextHistory(Response{Status: 503}),
		Always(Response{RetryAfter: "1"}),
		AlwaysHistory(Response{Code: "missing_scope"}),
	))
	f.expect(f.post, "C1", archived, posted, "429 after 1"+limited, "429 after 1"+limited)
	history := func(channel string) string { return f.method("conversations.history", channel) }
	missing := `200 {"error":"missing_scope","ok":false}`
	f.expect(history, "C1", "503 Service Unavailable", missing, missing)
	f.expect(func(channel string) string { return f.method("auth.test", channel) }, "", posted)
	if requests, searches := f.Requests(), f.HistoryRequests(); requests != 4 || searches != 3 {
		t.Errorf("%d posts and %d searches, want 4 and 3", requests, searches)
	}
	f.Respond(func(r Request) *Response {
		if r.Message.Channel != "C2" || r.Message.Text != "hi" {
			return nil
		}
		return &Response{Header: map[string]string{"Retry-After": "5"}}
	})
	f.expect(f.post, "C1", posted)
	f.expect(f.post, "C2", "200 after 5 ok")
	f.Respond(nil)
	f.expect(f.post, "C2", posted)
}

func TestLimitOfEachChannel(t *testing.T) {
	f := startFake(t)
	f.setLimit("3/10s", 10*time.Second)
	f.expect(f.post, "#deploys", posted, posted, posted, "429 after 10"+limited)
	f.pass(2500 * time.Millisecond)
	id := channelID("deploys")
	for _, same := range []string{"deploys", "#deploys", id} { // further posts do not extend the pause
		f.expect(f.post, same, "429 after 8"+limited)
	}
	f.expect(f.hook, "#deploys", "429 after 8 ratelimited")
	f.expect(f.hook, "#other", "200 ok", "200 ok", "200 ok", "429 after 10 ratelimited")
	f.expect(f.hook, "", "200 ok", "200 ok", "200 ok", "429 after 10 ratelimited") // the webhook's own channel
	f.Respond(Next(Response{Code: "is_archived"}))
	f.expect(f.post, "C1", archived, posted, posted, posted, "429 after 10"+limited) // only accepted posts count

	f.pass(7499 * time.Millisecond)
	f.expect(f.post, "deploys", "429 after 1"+limited)
	f.pass(time.Millisecond)
	f.expect(f.post, id, posted, posted, posted, "429 after 10"+limited)
	if got := f.Limited("#deploys"); got != 7 || f.Accepted() != 15 {
		t.Errorf("%d limited and %d accepted, want 7 and 15", got, f.Accepted())
	}
	f.SetLimit(nil, 0)
	f.expect(f.post, id, posted)
}
