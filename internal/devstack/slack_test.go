package devstack

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"notifier/test/kit"
)

// startSlack starts a fake Slack and an HTTP client for it. Its cleanup closes both and fails the test if
// goroutines remain.
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
		{api, formType, "token=xoxb-revoked&channel=C1&text=hi", "token_revoked"},
		{api, formType, "channel=C1&text=hi", "not_authed"},
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
	for code, want := range map[string]int{"channel_is_archived": 410, "rollup_error": 500} {
		s.Respond(Next(Response{Code: code}))
		if status, body, _ := post(t, client, s.WebhookURL(), jsonType, `{"text":"hi"}`); status != want || body != code {
			t.Errorf("%s: %d %q, want %d", code, status, body, want)
		}
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
	if _, after := s.after(posts + 1); len(after) != keptMessages {
		t.Errorf("after a number of another start: %d, want all", len(after))
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
			if data, ok := strings.CutPrefix(lines.Text(), `data: {"n":`); ok {
				kit.Check(t, json.Unmarshal([]byte(`{"n":`+data), &m))
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
