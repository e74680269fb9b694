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
	"notifier/test/kit"
)

// TestTheInboxPageSwitchesTheMode submits the form of the page, which then shows the fake's mode and
// refusals.
func TestTheInboxPageSwitchesTheMode(t *testing.T) {
	t.Parallel()
	slack, err := devstack.StartSlack(ephemeralAddr)
	kit.Check(t, err)
	defer slack.Close()
	defer http.DefaultClient.CloseIdleConnections()
	post := func() (status int, answer string) {
		t.Helper()
		message := url.Values{"token": {"xoxb-1"}, "channel": {"<i>C1</i>"}, "text": {"hi"}}
		response, err := http.PostForm(slack.APIURL()+"chat.postMessage", message)
		kit.Check(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		kit.Check(t, err)
		return response.StatusCode, string(body)
	}
	b := openBrowser(t)
	b.open(t, slack.URL())
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
		if status, answer := post(); status != want {
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
	if status, answer := post(); status != 200 || !strings.Contains(answer, `"ok":true`) {
		t.Errorf("%d %s, expected it accepted", status, answer)
	}
	b.expectFailures(true) // closing the fake ends the page's event stream
}

// asksTheFake runs a document's curl command against a fake Slack: a POST with -d, a GET without.
func asksTheFake(t *testing.T, document string, words []string) {
	t.Helper()
	slack, err := devstack.StartSlack(ephemeralAddr)
	kit.Check(t, err)
	defer slack.Close()
	defer http.DefaultClient.CloseIdleConnections()
	address, found := strings.CutPrefix(words[len(words)-1], "http://127.0.0.1:8090")
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
	kit.Check(t, err)
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
		t.Errorf("%s: %q: %d %s", document, words, response.StatusCode, body)
	}
}
