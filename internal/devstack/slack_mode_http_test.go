package devstack

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"notifier/test/kit"
)

// change posts a mode as JSON with some headers.
func (s *limitedSlack) change(body string, headers ...string) (status int, answer string) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.URL()+"/fake/mode", strings.NewReader(body))
	kit.Check(s.T, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.client.Do(req)
	kit.Check(s.T, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	kit.Check(s.T, err)
	return resp.StatusCode, strings.TrimSpace(string(data))
}

// shownMode returns what the fake says about its mode.
func (s *limitedSlack) shownMode() (shown modeShown) {
	s.Helper()
	resp, err := s.client.Get(s.URL() + "/fake/mode")
	kit.Check(s.T, err)
	defer resp.Body.Close()
	kit.Check(s.T, json.NewDecoder(resp.Body).Decode(&shown))
	return shown
}

type modeShown struct {
	Mode     modeText
	Refused  int
	Channels []struct {
		ID, Name        string
		Failed, Revoked int
		ChannelLimit    int `json:"channel_limit"`
		WorkspaceLimit  int `json:"workspace_limit"`
	}
}

func TestModeIsChangedAtRunTime(t *testing.T) {
	s := startLimited(t, Mode{})
	off := modeText{Fail: []string{}}
	if diff := cmp.Diff(off, s.shownMode().Mode); diff != "" {
		t.Errorf("at the start (-want +got):\n%s", diff)
	}
	s.expect(s.post, "C1", okAnswer, okAnswer, okAnswer)

	whole := modeText{
		ChannelLimit: "1/10s", WorkspaceLimit: "5/1m+100/1h", RetryAfter: "1m30s", Fail: []string{"a=b=html", "<x>, y=internal_error"}, Revoked: true,
	}
	body, err := json.Marshal(whole)
	kit.Check(t, err)
	status, answer := s.change(string(body))
	var shown modeShown
	if err := json.Unmarshal([]byte(answer), &shown); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s: %v", status, answer, err)
	}
	whole.RetryAfter = "90s"
	if diff := cmp.Diff(whole, shown.Mode); diff != "" {
		t.Errorf("the answer (-want +got):\n%s", diff)
	}
	s.expect(s.post, "C1", revoked)

	if status, answer := s.change(`{"channel_limit":"1/10s","retry_after":""}`); status != http.StatusOK { // the rest is off
		t.Errorf("%d %s", status, answer)
	}
	s.expect(s.post, "#deploys", okAnswer, "429 after 10"+limited, "429 after 10"+limited)
	shown = s.shownMode()
	if diff := cmp.Diff(modeText{ChannelLimit: "1/10s", Fail: []string{}}, shown.Mode); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := fmt.Sprintf("%d %+v", shown.Refused, shown.Channels); got != fmt.Sprintf(
		"3 [{ID:%s Name:#deploys Failed:0 Revoked:0 ChannelLimit:2 WorkspaceLimit:0} {ID:C1 Name:C1 Failed:0 Revoked:1 ChannelLimit:0 WorkspaceLimit:0}]",
		channelID("#deploys")) {
		t.Errorf("refused: %s", got)
	}

	if status, answer := s.change(`{}`); status != http.StatusOK {
		t.Errorf("%d %s", status, answer)
	}
	s.expect(s.post, "#deploys", okAnswer, okAnswer) // the pause ended with its limit
}

func TestModeRefusesHostileForms(t *testing.T) {
	s := startLimited(t, Mode{ChannelLimit: limitOf(t, "1/10s")})
	before := s.shownMode()
	for body, want := range map[string]string{
		"":                                   "expected a JSON object",
		"channel_limit=1%2F10s":              "expected a JSON object",
		"[]":                                 "expected a JSON object",
		`{"chanel_limit":"1/10s"}`:           `unknown field "chanel_limit"`,
		`{"revoked":true}{"x":1}`:            "something follows",
		`{"revoked":"yes"}`:                  "expected a JSON object",
		`{"channel_limit":5}`:                "expected a JSON object",
		`{"channel_limit":"12"}`:             "channel_limit: \"12\", expected COUNT/DURATION",
		`{"workspace_limit":"1000000/744h"}`: "workspace_limit: 1000000/744h, expected a count from 1 to 10000",
		`{"retry_after":"10"}`:               "retry_after: \"10\", expected whole seconds",
		`{"retry_after":"0s"}`:               "expected whole seconds",
		`{"retry_after":"-1s"}`:              "expected whole seconds",
		`{"fail":["=html"]}`:                 "fail: text of 0 bytes, expected 1 to 1000",
		`{"fail":["x=<script>"]}`:            "expected html or internal_error",
		`{"fail":["a\u0000b=html"]}`:         "expected no control characters",
		`{"fail":["` + strings.Repeat("x", 1001) + `=html"]}`:                     "text of 1001 bytes",
		`{"fail":[` + strings.Repeat(`"x=html",`, maxModeFailures) + `"x=html"]}`: "101 texts, expected at most 100",
		`{"fail":["` + strings.Repeat("x", maxModeBody) + `=html"]}`:              "too large",
		`{"channel_limit":"1/1s","retry_after":"1ms","fail":["x"]}`:               "retry_after: \"1ms\", expected whole seconds from 1s to 1h such as 10s\nfail: \"x\", expected TEXT=html",
	} {
		status, answer := s.change(body)
		if status != http.StatusBadRequest || !strings.Contains(answer, want) || len(answer) > 500 {
			t.Errorf("%.80s: %d %.300s, want 400 and %q", body, status, answer, want)
		}
	}
	if diff := cmp.Diff(before, s.shownMode()); diff != "" {
		t.Errorf("something was changed (-want +got):\n%s", diff)
	}
}

// TestOtherSitesCannotDriveTheFake: a page of another site can make a browser post, and the browser says where from.
func TestOtherSitesCannotDriveTheFake(t *testing.T) {
	s := startLimited(t, Mode{})
	const body = `{"revoked":true}`
	for _, headers := range [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site", "Origin", s.URL()}, {"Origin", "https://evil.example"},
		{"Origin", "null"}, {"Origin", "http://localhost:1"}, {"Origin", "https://evil.example", "Content-Type", "text/plain"},
	} {
		if status, answer := s.change(body, headers...); status != http.StatusForbidden {
			t.Errorf("%v: %d %s, want 403", headers, status, answer)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/fake/always", strings.NewReader(`{"status":500}`))
		kit.Check(t, err)
		req.Header.Set(headers[0], headers[1])
		resp, err := s.client.Do(req)
		kit.Check(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%v: /fake/always gives %d, want 403", headers, resp.StatusCode)
		}
	}
	s.expect(s.post, "C1", okAnswer)
	for _, headers := range [][]string{
		{}, {"Origin", s.URL()}, {"Sec-Fetch-Site", "same-origin", "Origin", s.URL()}, {"Sec-Fetch-Site", "none"},
	} {
		kit.Check(t, s.SetMode(Mode{}))
		if status, answer := s.change(body, headers...); status != http.StatusOK {
			t.Errorf("%v: %d %s, want 200", headers, status, answer)
		}
		s.expect(s.post, "C1", revoked)
	}
}

// TestTheStreamAnnouncesTheMode: an open page asks again when the mode changes, and when it refuses something.
func TestTheStreamAnnouncesTheMode(t *testing.T) {
	s := startLimited(t, Mode{})
	resp, err := s.client.Get(s.URL() + "/events")
	kit.Check(t, err)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	awaitMode := func() {
		t.Helper()
		for lines.Scan() {
			if lines.Text() == "event: mode" {
				return
			}
		}
		t.Fatal("the stream ended")
	}
	awaitMode()
	kit.Check(t, s.SetMode(Mode{ChannelLimit: limitOf(t, "1/10s")}))
	awaitMode()
	s.expect(s.post, "C1", okAnswer, "429 after 10"+limited)
	awaitMode()
}
