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

// TestInboxPage shows messages as text, and sets the faults of the fake Slack by the page's form.
func TestInboxPage(t *testing.T) {
	t.Parallel()
	slack, err := devstack.StartSlack(ephemeralAddr)
	kit.Check(t, err)
	defer slack.Close()
	defer http.DefaultClient.CloseIdleConnections()
	const markup = `<img src=x onerror="document.title='owned'"><b>bold</b>`
	post := func() (status int, reply string) {
		t.Helper()
		blocks := `[{"type":"section","text":{"type":"mrkdwn","text":"` + strings.ReplaceAll(markup, `"`, `\"`) + `"}},` +
			`{"type":"<i>","alt_text":"<i>"},{"type":"actions","elements":[{"text":{"text":"<i>"}}]}]`
		message := url.Values{
			"token": {"xoxb-1"}, "channel": {"<i>C1</i>"}, "text": {markup + "<javascript:alert(1)|click>&lt;b&gt;"}, "blocks": {blocks},
		}
		response, err := http.PostForm(slack.APIURL()+"chat.postMessage", message)
		kit.Check(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		kit.Check(t, err)
		return response.StatusCode, string(body)
	}
	b := openBrowser(t)
	b.open(t, slack.URL())
	b.waitForText(t, "#faults-now", "Slack accepts everything")
	b.waitForText(t, "#state", "live")
	fill := func(name, value string) {
		t.Helper()
		see[bool](t, b, `(() => { const field = document.forms[0].elements[`+"`"+name+"`"+`]; field.value = `+"`"+value+"`"+`;
			field.dispatchEvent(new Event("input", { bubbles: true })); return true; })()`)
	}
	b.do(t, chromedp.Click("#faults-now"))
	fill("channel", "<i>C1</i>")
	fill("limit", "1/1h")
	fill("retry_after", "1m")
	b.do(t, chromedp.Click("#faults-form button:not([type])"))
	b.waitForText(t, "#faults-now", "Slack fails: limit 1/1h per channel; Retry-After 1m")
	for _, want := range []int{200, 429, 429} {
		if status, reply := post(); status != want {
			t.Errorf("%d %s, expected %d", status, reply, want)
		}
	}
	b.waitForText(t, "#faults-now", "· 2 refused")
	b.waitForText(t, "#list", "click<b>")
	b.waitForText(t, "#channels", "#<i>C1</i>")
	if n := see[int](t, b, `document.querySelectorAll("#list b, #list i, #list img, #list a, nav i").length`); n != 0 {
		t.Errorf("%d elements come from the text of a message", n)
	}

	b.expectFailures(true) // a 400
	fill("fail", "200")
	b.do(t, chromedp.Click("#faults-form button:not([type])"))
	b.waitForText(t, "#faults-reply", `fail: "200", expected an HTTP status`)
	b.waitForText(t, "#faults-now", "limit 1/1h per channel") // as before
	b.expectFailures(false)
	fill("fail", "is_archived")
	b.do(t, chromedp.Click("#faults-form button:not([type])"))
	b.waitForText(t, "#faults-now", "Slack fails: posts to <i>C1</i> fail with is_archived")
	if status, reply := post(); status != 200 || !strings.Contains(reply, "is_archived") {
		t.Errorf("%d %s, expected is_archived", status, reply)
	}
	b.do(t, chromedp.Click("#faults-off"))
	b.waitForText(t, "#faults-now", "Slack accepts everything · 3 refused")
	if status, reply := post(); status != 200 || !strings.Contains(reply, `"ok":true`) {
		t.Errorf("%d %s, expected it accepted", status, reply)
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
