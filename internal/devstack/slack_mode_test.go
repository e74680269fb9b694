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

// modeClock is the clock of a fake's limits, which a test moves.
type modeClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *modeClock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *modeClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// limitedSlack is a fake with a mode and a clock of its own.
type limitedSlack struct {
	*testing.T
	*Slack
	client *http.Client
	clock  *modeClock
}

func startLimited(t *testing.T, m Mode) *limitedSlack {
	t.Helper()
	s, client := startSlack(t)
	clock := &modeClock{now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	s.SetNow(clock.read)
	kit.Check(t, s.SetMode(m))
	return &limitedSlack{T: t, Slack: s, client: client, clock: clock}
}

func limitOf(t *testing.T, text string) ratelimit.Limit {
	t.Helper()
	limit, err := ratelimit.ParseLimit(text)
	kit.Check(t, err)
	return limit
}

// send posts a form, and returns the response in one text: status, Retry-After, body.
func (s *limitedSlack) send(url string, form url.Values) string {
	s.Helper()
	resp, err := s.client.PostForm(url, form)
	kit.Check(s.T, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	kit.Check(s.T, err)
	text := fmt.Sprint(resp.StatusCode)
	if after := resp.Header.Get("Retry-After"); after != "" {
		text += " after " + after
	}
	if strings.Contains(string(body), `"ok":true`) {
		return text + " ok"
	}
	return text + " " + strings.TrimSpace(string(body))
}

// post posts a text to a channel by the Web API.
func (s *limitedSlack) post(channel, text string) string {
	s.Helper()
	return s.send(s.APIURL()+"chat.postMessage", url.Values{"token": {"xoxb-1"}, "channel": {channel}, "text": {text}})
}

// hook posts a text by the webhook.
func (s *limitedSlack) hook(channel, text string) string {
	s.Helper()
	payload := fmt.Sprintf(`{"text":%q,"channel":%q}`, text, channel)
	return s.send(s.WebhookURL(), url.Values{"payload": {payload}})
}

// expect sends posts in a row and compares the responses.
func (s *limitedSlack) expect(post func(channel, text string) string, channel string, want ...string) {
	s.Helper()
	for i, w := range want {
		if got := post(channel, "hi"); got != w {
			s.Errorf("%s, post %d: %q, want %q", channel, i+1, got, w)
		}
	}
}

// Responses of the Web API.
const (
	okAnswer = "200 ok"
	limited  = ` {"error":"ratelimited","ok":false}`
	internal = `200 {"error":"internal_error","ok":false}`
	revoked  = `200 {"error":"token_revoked","ok":false}`
)

func TestModeLimitsEachChannelOnItsOwn(t *testing.T) {
	s := startLimited(t, Mode{ChannelLimit: limitOf(t, "3/10s"), RetryAfter: 10 * time.Second})
	s.expect(s.post, "#deploys", okAnswer, okAnswer, okAnswer, "429 after 10"+limited)
	s.clock.pass(2500 * time.Millisecond)
	id := channelID("deploys")
	for _, same := range []string{"deploys", "#deploys", id} { // no post extends the pause
		s.expect(s.post, same, "429 after 8"+limited)
	}
	s.expect(s.hook, "#deploys", "429 after 8 ratelimited")
	s.expect(s.hook, "#other", "200 ok", "200 ok", "200 ok", "429 after 10 ratelimited")
	s.expect(s.post, "C1", okAnswer, okAnswer, okAnswer)
	s.expect(s.hook, "", "200 ok", "200 ok", "200 ok", "429 after 10 ratelimited") // the webhook's own channel

	s.clock.pass(7499 * time.Millisecond)
	s.expect(s.post, "deploys", "429 after 1"+limited)
	s.clock.pass(time.Millisecond) // the header was honoured
	s.expect(s.post, id, okAnswer, okAnswer, okAnswer, "429 after 10"+limited)
	if got := s.Refused(id); got != (Refusals{ChannelLimit: 7}) || s.Accepted() != 6+3+3+3 {
		t.Errorf("%+v and %d accepted, want 7 refused by the limit of the channel, and 15", got, s.Accepted())
	}
}

// TestModeLimitsRoll: without a Retry-After of its own a 429 names the time at which the window has room.
func TestModeLimitsRoll(t *testing.T) {
	s := startLimited(t, Mode{})
	for _, limit := range []string{"2/10s+3/1m", "3/1m+2/10s"} {
		kit.Check(t, s.SetMode(Mode{ChannelLimit: limitOf(t, limit)}))
		s.expect(s.post, "C1", okAnswer)
		s.clock.pass(4 * time.Second)
		s.expect(s.post, "C1", okAnswer)
		s.clock.pass(5500 * time.Millisecond) // 9.5 s and 5.5 s old
		s.expect(s.post, "C1", "429 after 1"+limited)
		s.clock.pass(time.Second) // 10.5 s and 6.5 s
		s.expect(s.post, "C1", okAnswer, "429 after 50"+limited)
		s.clock.pass(50 * time.Second) // the first is 60.5 s old
		s.expect(s.post, "C1", okAnswer, "429 after 4"+limited)
	}

	// The pause of a short Retry-After ends before there is room: the next post is refused anew.
	kit.Check(t, s.SetMode(Mode{ChannelLimit: limitOf(t, "1/10s"), RetryAfter: 3 * time.Second}))
	s.expect(s.post, "C1", okAnswer, "429 after 3"+limited)
	s.clock.pass(3 * time.Second)
	s.expect(s.post, "C1", "429 after 3"+limited)
	s.clock.pass(7 * time.Second) // exactly as old as the window is long
	s.expect(s.post, "C1", okAnswer)
}

func TestModeLimitsTheWorkspace(t *testing.T) {
	s := startLimited(t, Mode{ChannelLimit: limitOf(t, "3/1m"), WorkspaceLimit: limitOf(t, "5/10s"), RetryAfter: 10 * time.Second})
	s.expect(s.post, "C1", okAnswer, okAnswer, okAnswer, "429 after 10"+limited)
	s.expect(s.post, "C2", okAnswer)
	s.expect(s.hook, "C3", "200 ok", "429 after 10 ratelimited") // posts refused in C1 took no room
	s.clock.pass(time.Second)
	for _, channel := range []string{"C1", "C2", "C3", "C4"} {
		s.expect(s.post, channel, "429 after 9"+limited)
	}
	s.clock.pass(9 * time.Second)
	s.expect(s.post, "C2", okAnswer, okAnswer, "429 after 10"+limited)
	if got := s.Refused("C1"); got != (Refusals{ChannelLimit: 1, WorkspaceLimit: 1}) {
		t.Errorf("C1: %+v", got)
	}
	kit.Check(t, s.SetMode(Mode{WorkspaceLimit: limitOf(t, "1/10s")})) // begins anew
	s.expect(s.post, "C2", okAnswer, "429 after 10"+limited)
	kit.Check(t, s.SetMode(Mode{}))
	s.expect(s.post, "C2", okAnswer, okAnswer)
}

func TestModeFailsTexts(t *testing.T) {
	s := startLimited(t, Mode{
		ChannelLimit: limitOf(t, "2/10s"),
		Fail:         []Failure{{"boom", FailHTML}, {"a=b, c", FailInternal}, {"boom a=b, c", FailInternal}},
	})
	page := "403 " + strings.TrimSpace(frontEndPage)
	for range 3 { // a front end's error counts in no limit
		if got := s.post("C1", "boom a=b, c"); got != page { // the first that matches counts
			t.Errorf("%q, want the page", got)
		}
	}
	if got := s.hook("C1", "big boom"); got != page {
		t.Errorf("%q, want the page", got)
	}
	if got := s.post("C1", "so a=b, c"); got != internal {
		t.Errorf("%q, want internal_error", got)
	}
	if got := s.hook("C1", "so a=b, c"); got != "200 internal_error" {
		t.Errorf("%q, want internal_error", got)
	}
	if got := s.post("C1", "fine"); got != "429 after 10"+limited { // Slack's own error counts
		t.Errorf("%q, want a 429", got)
	}
	if got := s.post("C2", "fine"); got != okAnswer {
		t.Errorf("%q, want it accepted", got)
	}
	if got := s.Refused("C1"); got != (Refusals{Failed: 6, ChannelLimit: 1}) || s.Accepted() != 1 {
		t.Errorf("%+v, %d accepted", got, s.Accepted())
	}
}

func TestModeRevokesTheToken(t *testing.T) {
	s := startLimited(t, Mode{Revoked: true})
	for _, method := range []string{"chat.postMessage", "auth.test", "conversations.history", "conversations.replies"} {
		form := url.Values{"token": {"xoxb-1"}, "channel": {"C1"}, "text": {"hi"}, "ts": {"1.2"}}
		if got := s.send(s.APIURL()+method, form); got != revoked {
			t.Errorf("%s: %q, want token_revoked", method, got)
		}
	}
	s.expect(s.hook, "C1", "403 invalid_token")
	if got := s.Refused("C1"); got != (Refusals{Revoked: 2}) || s.Accepted() != 0 {
		t.Errorf("%+v, %d accepted", got, s.Accepted())
	}
	kit.Check(t, s.SetMode(Mode{}))
	s.expect(s.post, "C1", okAnswer)
	if got := s.send(s.APIURL()+"auth.test", url.Values{"token": {"xoxb-1"}}); got != okAnswer {
		t.Errorf("auth.test: %q after the mode was taken back", got)
	}
}

// TestScriptedBehavioursGoBeforeTheMode: and such posts, and those that Slack refuses by itself, count in no
// limit.
func TestScriptedBehavioursGoBeforeTheMode(t *testing.T) {
	s := startLimited(t, Mode{ChannelLimit: limitOf(t, "1/10s")})
	s.Next(Behaviour{}, Behaviour{Code: "is_archived"}, Behaviour{})
	s.expect(s.post, "C1", okAnswer, `200 {"error":"is_archived","ok":false}`, okAnswer)
	if got := s.post("C1", ""); got != `200 {"error":"no_text","ok":false}` {
		t.Errorf("without a text: %q", got)
	}
	s.expect(s.post, "C1", okAnswer, "429 after 10"+limited)
	s.Always(Behaviour{Code: "is_archived"})
	s.expect(s.post, "C1", `200 {"error":"is_archived","ok":false}`)
	s.Always(Behaviour{Delay: time.Millisecond}) // only delays
	s.expect(s.post, "C1", "429 after 10"+limited)
}
