package devstack

import (
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

// shownMode returns the response of /fake/mode.
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

	// the rest is off
	if status, answer := s.change(`{"channel_limit":"1/10s","retry_after":""}`); status != http.StatusOK {
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

func TestWrongModesChangeNothing(t *testing.T) {
	s := startLimited(t, Mode{ChannelLimit: limitOf(t, "1/10s")})
	before := s.shownMode()
	for body, want := range map[string]string{
		"channel_limit=1%2F10s":        "expected a JSON object",
		`{"chanel_limit":"1/10s"}`:     `unknown field "chanel_limit"`,
		`{"channel_limit":"12"}`:       `channel_limit: "12", expected COUNT/DURATION`,
		`{"retry_after":"10"}`:         `retry_after: time: missing unit`,
		`{"retry_after":"1500ms"}`:     "retry_after: 1.5s, expected whole seconds",
		`{"fail":["x=<script>"]}`:      `fail: "x=<script>", expected TEXT=html or TEXT=internal_error`,
		`{"revoked":true,"fail":[""]}`: "expected TEXT=html",
	} {
		if status, answer := s.change(body); status != http.StatusBadRequest || !strings.Contains(answer, want) {
			t.Errorf("%s: %d %s, want 400 and %q", body, status, answer, want)
		}
	}
	if diff := cmp.Diff(before, s.shownMode()); diff != "" {
		t.Errorf("something was changed (-want +got):\n%s", diff)
	}
}

// TestOtherSitesCannotDriveTheFake: a page of another site can make a browser post, and the browser says
// where from.
func TestOtherSitesCannotDriveTheFake(t *testing.T) {
	s := startLimited(t, Mode{})
	for from, want := range map[string]int{"cross-site": http.StatusForbidden, "same-origin": http.StatusOK} {
		if status, answer := s.change(`{"revoked":true}`, "Sec-Fetch-Site", from); status != want {
			t.Errorf("%s: %d %s, want %d", from, status, answer, want)
		}
	}
}
