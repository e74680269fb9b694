package main

import (
	"net/http"
	"net/url"
	"testing"

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
	b := openBrowser(t)
	b.open(t, slack.URL())
	b.waitForText(t, "#faults-now", "Slack accepts everything")
	see[bool](t, b, `document.forms[0].elements["fail"].value = "is_archived", true`)
	b.click(t, "#faults-form button:not([type])")
	b.waitForText(t, "#faults-now", "Slack fails: posts fail with is_archived")
	b.click(t, "#faults-off")
	b.waitForText(t, "#faults-now", "Slack accepts everything")
	response, err := http.PostForm(slack.APIURL()+"chat.postMessage", url.Values{
		"token": {"xoxb-1"}, "channel": {"<i>C1</i>"}, "text": {markup + "<javascript:alert(1)|click>&lt;b&gt;"},
		"blocks": {`[{"type":"<i>","alt_text":"<i>"},{"type":"actions","elements":[{"text":{"text":"<i>"}}]}]`},
	})
	kit.Check(t, err)
	kit.Check(t, response.Body.Close())
	b.waitForText(t, "#list", "click<b>")
	b.waitForText(t, "#channels", "#<i>C1</i>")
	if n := see[int](t, b, `document.querySelectorAll("#list b, #list i, #list img, #list a, nav i").length`); n != 0 {
		t.Errorf("%d elements come from the text of a message", n)
	}
	b.expectFailures(true) // closing the fake ends the page's event stream
}
