package devstack

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"notifier/test/kit"
)

// startSlack starts a fake and a client of its own; both end with the test, which then must have left nothing.
func startSlack(t *testing.T) (*Slack, *http.Client) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	s, err := StartSlack("127.0.0.1:0")
	kit.Check(t, err)
	client := &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		goleak.VerifyNone(t, before)
	})
	return s, client
}

func post(t *testing.T, client *http.Client, url, contentType, body string) (status int, answer string, err error) {
	t.Helper()
	resp, err := client.Post(url, contentType, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, strings.TrimSpace(string(data)), err
}

const (
	formType = "application/x-www-form-urlencoded"
	jsonType = "application/json; charset=utf-8"
)

func TestSlackAPI(t *testing.T) {
	s, client := startSlack(t)
	api := s.APIURL() + "chat.postMessage"
	for _, test := range []struct{ url, kind, body, want string }{
		{api, formType, "token=xoxb-1&channel=C1&text=hi", ""},
		{api, jsonType, `{"token":"xoxb-1","channel":"C1","blocks":[{"type":"divider"}]}`, ""},
		{api, formType, "channel=C1&text=hi", "not_authed"},
		{api, formType, "token=xoxb-revoked&channel=C1&text=hi", "token_revoked"},
		{api, formType, "token=nonsense&channel=C1&text=hi", "invalid_auth"},
		{api, formType, "token=xoxb-1&text=hi", "channel_not_found"},
		{api, formType, "token=xoxb-1&channel=C1", "no_text"},
		{api, formType, "token=xoxb-1&channel=C1&blocks=nonsense", "invalid_blocks_format"},
		{api, jsonType, `nonsense`, "invalid_form_data"},
		{api, jsonType, `{"token":"xoxb-1","channel":"C1","blocks":[` + strings.Repeat(`{"type":"divider"},`, 50) + `{"type":"divider"}]}`, "invalid_blocks"},
		{api, jsonType, `{"token":"xoxb-1","channel":"C1","blocks":[{"type":"header","text":{"type":"plain_text","text":"` + strings.Repeat("x", 151) + `"}}]}`, "invalid_blocks"},
		{s.APIURL() + "chat.whisper", formType, "token=xoxb-1", "unknown_method"},
		{s.APIURL() + "auth.test", formType, "token=xoxb-1", ""},
		{s.APIURL() + "auth.test", formType, "token=xoxb-revoked", "token_revoked"},
		{s.APIURL() + "auth.test", formType, "", "not_authed"},
	} {
		status, body, err := post(t, client, test.url, test.kind, test.body)
		kit.Check(t, err)
		var answer struct {
			OK    bool
			Error string
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Errorf("%s: %v in %q", test.body, err, body)
		}
		if status != http.StatusOK || answer.Error != test.want || answer.OK != (test.want == "") {
			t.Errorf("%s %s: %d %s, want 200 and %q", test.url, test.body, status, body, test.want)
		}
	}
	if s.Accepted() != 2 || s.Requests() != 11 {
		t.Errorf("accepted %d of %d posts, want 2 of 11", s.Accepted(), s.Requests())
	}
	m := s.Messages()[0]
	if _, ok := m.Form["token"]; ok {
		t.Error("the token is kept")
	}
	if diff := cmp.Diff(Message{N: 1, Channel: "C1", Text: "hi", Via: "api", Form: map[string]string{"channel": "C1", "text": "hi"}},
		m, cmp.FilterPath(func(p cmp.Path) bool {
			return p.String() == "Time" || p.String() == "TS" || p.String() == "Header"
		}, cmp.Ignore())); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

func TestSlackWebhook(t *testing.T) {
	s, client := startSlack(t)
	for _, test := range []struct {
		url, kind, body string
		status          int
		want            string
	}{
		{s.WebhookURL(), jsonType, `{"text":"hi","thread_ts":"1.2"}`, 200, "ok"},
		{s.WebhookURL(), formType, "payload=" + url.QueryEscape(`{"text":"hi","channel":"#deploys"}`), 200, "ok"},
		{s.WebhookURL(), jsonType, `{}`, 400, "no_text"},
		{s.WebhookURL(), jsonType, `nonsense`, 400, "invalid_payload"},
		{s.WebhookURL(), jsonType, `null`, 400, "invalid_payload"},
		{s.WebhookURL() + "x", jsonType, `{"text":"hi"}`, 403, "invalid_token"},
		{s.URL() + "/services/T9/B9/x", jsonType, `{"text":"hi"}`, 404, "no_service"},
	} {
		status, body, err := post(t, client, test.url, test.kind, test.body)
		if err != nil || status != test.status || body != test.want {
			t.Errorf("%s: %d %q %v, want %d %q", test.body, status, body, err, test.status, test.want)
		}
	}
	messages := s.Messages()
	if len(messages) != 2 || messages[0].Channel != "webhook" || messages[0].ThreadTS != "1.2" || messages[1].Channel != "#deploys" {
		t.Errorf("messages %+v", messages)
	}
	for code, want := range map[string]int{"channel_is_archived": 410, "no_service": 404, "rollup_error": 500, "user_not_found": 400} {
		s.Next(Behaviour{Code: code})
		if status, body, _ := post(t, client, s.WebhookURL(), jsonType, `{"text":"hi"}`); status != want || body != code {
			t.Errorf("%s: %d %q, want %d", code, status, body, want)
		}
	}
}

func TestSlackBehaviours(t *testing.T) {
	s, client := startSlack(t)
	send := func() (int, string, error) {
		return post(t, client, s.APIURL()+"chat.postMessage", formType, "token=xoxb-1&channel=C1&text=hi")
	}
	for _, test := range []struct {
		b        Behaviour
		status   int
		body     string // a part of it
		accepted bool
	}{
		{Behaviour{}, 200, `"ok":true`, true},
		{Behaviour{Code: "is_archived"}, 200, `"error":"is_archived"`, false},
		{Behaviour{Status: 429, RetryAfter: "3"}, 429, `"error":"ratelimited"`, false},
		{Behaviour{RetryAfter: "3"}, 429, `"error":"ratelimited"`, false},
		{Behaviour{Status: 503}, 503, "Service Unavailable", false},
		{Behaviour{Status: 502, Accept: true}, 502, "Bad Gateway", true},
		{Behaviour{Body: "<html>"}, 200, "<html>", false},
		{Behaviour{Accept: true}, 200, `"ok":true`, true},
		{Behaviour{Delay: time.Millisecond}, 200, `"ok":true`, true},
		{Behaviour{ResetBefore: true}, 0, "", false},
		{Behaviour{ResetAfter: true}, 0, "", true},
	} {
		s.Next(test.b)
		before := s.Accepted()
		status, body, err := send()
		if status != test.status || !strings.Contains(body, test.body) || (err != nil) != (test.status == 0) {
			t.Errorf("%+v: %d %q %v", test.b, status, body, err)
		}
		if got := s.Accepted() > before; got != test.accepted {
			t.Errorf("%+v: accepted %t", test.b, got)
		}
	}

	s.Always(Behaviour{Status: 500})
	s.Next(Behaviour{Status: 501})
	for _, want := range []int{501, 500, 500} {
		if status, _, _ := send(); status != want {
			t.Errorf("status %d, want %d", status, want)
		}
	}
	s.Always(Behaviour{})
	if status, _, _ := send(); status != 200 {
		t.Errorf("status %d after Always was taken back", status)
	}
}

// In a brown-out some posts fail, each in one of the ways given, and the others do not.
func TestSlackBrownOut(t *testing.T) {
	s, client := startSlack(t)
	answers := map[int]int{}
	postSome := func() {
		for range 100 {
			status, _, err := post(t, client, s.WebhookURL(), jsonType, `{"text":"hi"}`)
			kit.Check(t, err)
			answers[status]++
		}
	}
	s.Often(60, Behaviour{Status: 500}, Behaviour{Status: 503})
	postSome()
	if answers[200] == 0 || answers[500] == 0 || answers[503] == 0 || s.Accepted() != answers[200] {
		t.Errorf("statuses %v and %d accepted, expected some of 200, 500 and 503, the first accepted", answers, s.Accepted())
	}
	s.Always(Behaviour{})
	clear(answers)
	if postSome(); answers[200] != 100 {
		t.Errorf("statuses %v after it, expected 100 times 200", answers)
	}
}

func TestSlackIsDrivenByHTTP(t *testing.T) {
	s, client := startSlack(t)
	for _, body := range []string{"", "[]", "{", `{"no_such":1}`, `{"delay":"soon"}`, `{"status":7}`, `7`} {
		if status, _, _ := post(t, client, s.URL()+"/fake/next", jsonType, body); status != http.StatusBadRequest {
			t.Errorf("%q: status %d, want 400", body, status)
		}
	}
	for path, body := range map[string]string{
		"/fake/next":   `[{"status":500},{"code":"is_archived","delay":"1ms"}]`,
		"/fake/always": `{"status":429,"retry_after":"5"}`,
	} {
		if status, answer, _ := post(t, client, s.URL()+path, jsonType, body); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	for _, want := range []int{500, 400, 429, 429} {
		if status, _, _ := post(t, client, s.WebhookURL(), jsonType, `{"text":"hi"}`); status != want {
			t.Errorf("status %d, want %d", status, want)
		}
	}
	expectStats(t, s, client, map[string]int{"requests": 4, "accepted": 0, "queued": 0, "history": 0})
}

func TestSlackCloseEndsHungRequests(t *testing.T) {
	s, client := startSlack(t)
	s.Next(Behaviour{Hang: true})
	changed := s.Changed()
	done := make(chan error, 1)
	go func() {
		_, _, err := post(t, client, s.WebhookURL(), jsonType, `{"text":"hi"}`)
		done <- err
	}()
	<-changed
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil {
		t.Error("the hung request was answered")
	}
	if s.Accepted() != 0 {
		t.Error("the hung request was accepted")
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestSlackTakesAFreePort(t *testing.T) {
	first, client := startSlack(t)
	second, err := StartSlack(strings.TrimPrefix(first.URL(), "http://"))
	kit.Check(t, err)
	defer second.Close()
	if first.URL() == second.URL() {
		t.Fatal("both have the same address")
	}
	if status, _, err := post(t, client, second.WebhookURL(), jsonType, `{"text":"hi"}`); status != 200 {
		t.Errorf("%d %v", status, err)
	}
	client.CloseIdleConnections()
	if _, err := StartSlack("nonsense"); err == nil {
		t.Error("an address without a port is taken")
	}
}

func TestSlackManyAtOnce(t *testing.T) {
	s, client := startSlack(t)
	const posts = 200
	var senders sync.WaitGroup
	for range 8 {
		senders.Go(func() {
			for range posts / 8 {
				_, _, _ = post(t, client, s.WebhookURL(), jsonType, `{"text":"hi"}`)
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	kit.Check(t, s.Wait(ctx, func(n int) bool { return n == posts }))
	senders.Wait()
	last := ""
	for i, m := range s.Messages() {
		if m.TS <= last || m.N != i+1 {
			t.Fatalf("message %d: n %d, ts %s after %s", i, m.N, m.TS, last)
		}
		last = m.TS
	}
	cancel()
	if err := s.Wait(ctx, func(int) bool { return false }); err != context.Canceled {
		t.Errorf("Wait: %v, want the context's error", err)
	}
}

func TestSlackKeepsTheLastMessages(t *testing.T) {
	s, _ := startSlack(t)
	const posts = 3*keptMessages + 7
	for i := range posts {
		s.accept(Message{Text: strconv.Itoa(i + 1)})
	}
	messages := s.Messages()
	if s.Accepted() != posts || len(messages) != keptMessages {
		t.Fatalf("accepted %d, kept %d", s.Accepted(), len(messages))
	}
	for i, m := range messages {
		if want := posts - keptMessages + i + 1; m.N != want || m.Text != strconv.Itoa(want) {
			t.Fatalf("message %d is %d %q, want %d", i, m.N, m.Text, want)
		}
	}
	if n, after := s.after(posts - 2); n != posts || len(after) != 2 {
		t.Errorf("after: %d of %d", len(after), n)
	}
	if _, after := s.after(1); len(after) != keptMessages {
		t.Errorf("after the first: %d", len(after))
	}
	if _, after := s.after(posts + 1); len(after) != keptMessages {
		t.Errorf("after a number of another start: %d, want all", len(after))
	}
}

func TestSlackInbox(t *testing.T) {
	s, client := startSlack(t)
	get := func(path string) (*http.Response, string) {
		t.Helper()
		resp, err := client.Get(s.URL() + path)
		kit.Check(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		kit.Check(t, err)
		return resp, string(body)
	}
	if _, body := get("/healthz"); body != "ok" {
		t.Errorf("healthz: %q", body)
	}
	resp, page := get("/")
	policy := resp.Header.Get("Content-Security-Policy")
	_, rest, _ := strings.Cut(policy, "script-src 'nonce-")
	nonce, _, _ := strings.Cut(rest, "'")
	if len(nonce) < 16 || strings.Count(page, `nonce="`+nonce+`"`) != 2 || strings.Contains(page, "{{") {
		t.Errorf("the page and its policy disagree about the nonce: %s", policy)
	}
	for _, outside := range []string{"http://", "https://", "src=", "//cdn", "@import", "url("} {
		if strings.Contains(page, outside) {
			t.Errorf("the page refers to %q", outside)
		}
	}
	_, _, _ = post(t, client, s.WebhookURL(), jsonType, `{"text":"one"}`)
	_, _, _ = post(t, client, s.WebhookURL(), jsonType, `{"text":"two"}`)
	var inbox struct {
		Accepted int
		Messages []Message
	}
	_, body := get("/inbox.json?since=1")
	kit.Check(t, json.Unmarshal([]byte(body), &inbox))
	if inbox.Accepted != 2 || len(inbox.Messages) != 1 || inbox.Messages[0].Text != "two" {
		t.Errorf("inbox %+v", inbox)
	}
}

func TestSlackStreamsMessages(t *testing.T) {
	s, client := startSlack(t)
	send := func(text string) {
		t.Helper()
		if status, _, err := post(t, client, s.WebhookURL(), jsonType, `{"text":"`+text+`"}`); status != 200 {
			t.Fatal(status, err)
		}
	}
	send("one")
	send("two")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/events", nil)
	kit.Check(t, err)
	req.Header.Set("Last-Event-ID", "1")
	resp, err := client.Do(req)
	kit.Check(t, err)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func() (m Message) {
		t.Helper()
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: {"); ok {
				kit.Check(t, json.Unmarshal([]byte("{"+data), &m))
				return m
			}
		}
		t.Fatal("the stream ended")
		return m
	}
	if m := next(); m.N != 2 || m.Text != "two" {
		t.Errorf("first event %+v, want the second message", m)
	}
	send("three")
	if m := next(); m.N != 3 || m.Text != "three" {
		t.Errorf("second event %+v, want the third message", m)
	}
	if err := s.Close(); err != nil { // ends the stream
		t.Error(err)
	}
	for lines.Scan() {
	}
}

// expectStats compares what the fake Slack counts under /fake/stats.
func expectStats(t *testing.T, s *Slack, client *http.Client, want map[string]int) {
	t.Helper()
	resp, err := client.Get(s.URL() + "/fake/stats")
	kit.Check(t, err)
	defer resp.Body.Close()
	var stats map[string]int
	kit.Check(t, json.NewDecoder(resp.Body).Decode(&stats))
	if diff := cmp.Diff(want, stats); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}
