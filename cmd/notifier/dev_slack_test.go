//go:build !production

package main

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"notifier/internal/devstack"
	"notifier/internal/testkit"
)

// fakeSlackAlone starts a fake Slack with some flags, and gives where its page, its Web API and its webhook are.
func fakeSlackAlone(t *testing.T, flags ...string) (p *process, page, api, webhook string) {
	t.Helper()
	p = start(t, nil, append([]string{"dev", "-slack-only", "127.0.0.1:0"}, flags...)...)
	fields := strings.Fields(strings.ReplaceAll(printed(t, p, "fake Slack:"), ",", ""))
	_, api, _ = strings.Cut(fields[2], "=")
	_, webhook, _ = strings.Cut(fields[3], "=")
	return p, fields[1], api, webhook
}

// postTo posts a text to a channel of a fake Slack, and gives its answer and its Retry-After.
func postTo(t *testing.T, api, channel, text string) (status int, answer, retryAfter string) {
	t.Helper()
	response, err := http.PostForm(api+"chat.postMessage", url.Values{"token": {devToken}, "channel": {channel}, "text": {text}})
	testkit.Check(t, err)
	defer http.DefaultClient.CloseIdleConnections()
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	testkit.Check(t, err)
	return response.StatusCode, string(body), response.Header.Get("Retry-After")
}

func TestTheFakeSlackTakesItsModeFromFlags(t *testing.T) {
	t.Parallel()
	p, _, api, _ := fakeSlackAlone(t, "-slack-channel-limit", "2/1h", "-slack-workspace-limit", "4/1h", "-slack-retry-after", "1m",
		"-slack-fail", "disk, full=html", "-slack-fail", "a=b=internal_error")
	for i, test := range []struct {
		channel, text string
		status        int
		answer, after string
	}{
		{"C1", "one", 200, `"ok":true`, ""},
		{"C1", "disk, full", 403, "<html>", ""},
		{"C1", "disk", 200, `"ok":true`, ""},
		{"C1", "three", 429, "ratelimited", "60"},
		{"C2", "a=b", 200, "internal_error", ""},
		{"C2", "fine", 200, `"ok":true`, ""},
		{"C3", "fine", 429, "ratelimited", "60"},
	} {
		status, answer, after := postTo(t, api, test.channel, test.text)
		if status != test.status || !strings.Contains(answer, test.answer) || after != test.after && test.after != "60" {
			t.Errorf("post %d: %d %q after %q, expected %d %q after %q", i, status, answer, after, test.status, test.answer, test.after)
		}
	}
	p.terminate(t)
	p.ends(t, exitDone)

	p, _, api, webhook := fakeSlackAlone(t, "-slack-revoked")
	if status, answer, _ := postTo(t, api, "C1", "hi"); status != 200 || !strings.Contains(answer, "token_revoked") {
		t.Errorf("%d %s, expected token_revoked", status, answer)
	}
	response, err := http.Post(webhook, "application/json", strings.NewReader(`{"text":"hi"}`))
	testkit.Check(t, err)
	_ = response.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("the webhook gives %d, expected 403", response.StatusCode)
	}
	p.terminate(t)
	p.ends(t, exitDone)
}

// TestDevRunsAWorkerAgainstABadSlack: the flags work with a worker too, which sees the page of a front end.
func TestDevRunsAWorkerAgainstABadSlack(t *testing.T) {
	t.Parallel()
	env := map[string]string{"LOG_FORMAT": "json", "ADMIN_ADDR": "", "SHUTDOWN_TIMEOUT": "1s"} // it holds an event at the end
	p := start(t, env, "dev", "-slack-revoked")
	publishesOnceItCan(t, p, "errors", "disk full")
	testkit.Eventually(t, "the worker says what Slack refuses", func() bool { return len(p.out.lines("token_revoked")) > 0 })
	p.terminate(t)
	p.ends(t, exitDone)
}

// TestTheInboxPageSwitchesTheMode: by its form, and it shows what the fake then has and has refused.
func TestTheInboxPageSwitchesTheMode(t *testing.T) {
	t.Parallel()
	p, page, api, _ := fakeSlackAlone(t)
	b := openBrowser(t)
	b.open(t, page)
	b.waitForText(t, "#mode-now", "Slack accepts everything")
	b.waitForText(t, "#state", "live")
	fill := func(name, value string) {
		t.Helper()
		see[bool](t, b, `(() => { const field = document.forms[0].elements[`+"`"+name+"`"+`]; field.value = `+"`"+value+"`"+`;
			field.dispatchEvent(new Event("input", { bubbles: true })); return true; })()`)
	}
	b.do(t, chromedp.Click("#mode-now"))
	fill("channel_limit", "1/1h")
	fill("retry_after", "1m")
	fill("fail", "<b>boom</b>=html\nx=y=internal_error")
	b.do(t, chromedp.Click("#mode-form button:not([type])"))
	b.waitForText(t, "#mode-now", "Slack behaves: 1/1h per channel; Retry-After 60s; fails: <b>boom</b>=html, x=y=internal_error")
	for _, want := range []int{200, 429, 429} {
		if status, answer, _ := postTo(t, api, "<i>C1</i>", "hi"); status != want {
			t.Errorf("%d %s, expected %d", status, answer, want)
		}
	}
	b.waitForText(t, "#mode-now", "· 2 refused")
	b.waitForText(t, "#refusals", "<i>C1</i>: 2 refused by the limit of the channel")
	if n := see[int](t, b, `document.querySelectorAll("#mode b, #mode i").length`); n != 0 {
		t.Error("a text has become markup")
	}

	b.expectFailures(true) // a 400
	fill("channel_limit", "often")
	b.do(t, chromedp.Click("#mode-form button:not([type])"))
	b.waitForText(t, "#mode-answer", `channel_limit: "often", expected COUNT/DURATION`)
	b.waitForText(t, "#mode-now", "1/1h per channel") // as before
	b.expectFailures(false)
	b.do(t, chromedp.Click("#mode-off"))
	b.waitForText(t, "#mode-now", "Slack accepts everything · 2 refused")
	if status, answer, _ := postTo(t, api, "<i>C1</i>", "hi"); status != 200 || !strings.Contains(answer, `"ok":true`) {
		t.Errorf("%d %s, expected it accepted", status, answer)
	}
	b.expectFailures(true) // what the page listens to is cut off
	p.terminate(t)
	p.ends(t, exitDone)
}

// asksTheFake runs a curl command of a document against a fake Slack: with -d it sets something, else it asks.
func asksTheFake(t *testing.T, document string, words []string) {
	t.Helper()
	slack, err := devstack.StartSlack(ephemeralAddr)
	testkit.Check(t, err)
	defer slack.Close()
	defer http.DefaultClient.CloseIdleConnections()
	address, found := strings.CutPrefix(words[len(words)-1], "http://"+devSlackAddr)
	if !found {
		t.Errorf("%s: %q does not ask the fake Slack", document, words)
	}
	ask := func() (*http.Response, error) { return http.Get(slack.URL() + address) }
	if at := slices.Index(words, "-d"); at > 0 {
		ask = func() (*http.Response, error) { // with the header of curl
			return http.Post(slack.URL()+address, "application/x-www-form-urlencoded", strings.NewReader(words[at+1]))
		}
	}
	response, err := ask()
	testkit.Check(t, err)
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
		t.Errorf("%s: %q: %d %s", document, words, response.StatusCode, body)
	}
}
