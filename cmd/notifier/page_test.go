package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"notifier/test/kit"
)

// TestPage opens the status page of a running worker in a browser, with its token in the address.
func TestPage(t *testing.T) {
	t.Parallel()
	const token = "correct-horse-battery"
	// Without a ">", which no category has. The browser would end the tag at the next one.
	const hostile = "<img/src=x/onerror=alert(1)//\u202e"
	b := openBrowser(t)
	p, server, _ := worker(t, map[string]string{"LIMIT_CATEGORY": "3/30m", "ADMIN_TOKEN": token})
	admin := readyURL(t, &p.out)
	if status, _ := get(t, admin+"/"); status != http.StatusUnauthorized {
		t.Errorf("without the token: %d, expected 401", status)
	}
	b.open(t, strings.Replace(admin, "http://", "http://anyone:"+token+"@", 1))
	b.waitForText(t, "#sentence", "Sending.")

	publishEach(t, server, "errors", 5, "deploys", 1, hostile, 1)
	b.waitForText(t, "#events tbody", "deploys", "errors", "dropped", "3/30m", "<img/src=x/onerror=alert(1)//")
	b.waitForText(t, "#limits tbody", "category/errors", "3/3")
	if n := see[int](t, b, `document.querySelectorAll("img").length`); n != 0 {
		t.Error("a category has become markup")
	}
	checkRefresh(t, b, func() { publishEach(t, server, "deploys", 1) })
	checkFailures(t, b)
	if see[int](t, b, "window.sameDocument ?? 0") != 1 {
		t.Error("the page has loaded itself again")
	}

	see[bool](t, b, `window.refreshed = false, refresh().then(() => window.refreshed = true), true`)
	kit.Eventually(t, "a refresh ends, which schedules the next one", func() bool { return see[bool](t, b, "window.refreshed") })
	b.expectFailures(true)
	p.terminate(t)
	p.ends(t, exitDone)
	b.waitForText(t, "#contact", "not updated since ", "Z: the worker does not answer")
	if title := see[string](t, b, "document.title"); title != "not updated · notifier" {
		t.Errorf("title %q", title)
	}
}

// checkRefresh publishes events and checks that a refresh shows the new ones and keeps a half typed filter.
func checkRefresh(t *testing.T, b *browser, publish func()) {
	t.Helper()
	b.do(t, chromedp.EmulateViewport(360, 400))
	see[bool](t, b, `location.search = "?n=4", true`) // so that each new row displaces another one
	kit.Eventually(t, "the page lists four events", func() bool {
		return see[int](t, b, `document.querySelectorAll("#events tbody tr").length`) == 4
	})
	see[int](t, b, "window.sameDocument = 1")
	const last = `document.querySelector("#events tbody tr:last-child").textContent`
	moves := func() {
		t.Helper()
		before := see[string](t, b, last)
		publish()
		kit.Eventually(t, "the page shows another event", func() bool {
			see[bool](t, b, "refresh(), true")
			return see[string](t, b, last) != before
		})
	}
	see[bool](t, b, `document.querySelector("[name=category]").focus(), document.execCommand("insertText", false, "err")`)
	moves()
	if typed := see[string](t, b, `document.activeElement.name + " " + document.activeElement.value`); typed != "category err" {
		t.Errorf("the refresh has changed the filter to %q", typed)
	}
}

// checkFailures replaces fetch: by a proxy's responses, and by a counter while the page is hidden.
func checkFailures(t *testing.T, b *browser) {
	t.Helper()
	see[bool](t, b, `window.realFetch = fetch, true`)
	for _, response := range []string{`new Response("no backend", { status: 503 })`, `new Response("<main>login</main>")`} {
		see[bool](t, b, fmt.Sprintf(`window.fetch = async () => %s, true`, response))
		b.waitForText(t, "#contact", "not updated since ")
		see[bool](t, b, `window.fetch = realFetch, true`)
		kit.Eventually(t, "the page recovers", func() bool {
			see[bool](t, b, "refresh(), true")
			return b.text(t, "#contact") == "" && !see[bool](t, b, `document.body.classList.contains("lost")`)
		})
	}
	hidden := see[int](t, b, `(() => {
		window.requests = 0;
		window.fetch = async () => { window.requests++; throw new Error("counted"); };
		Object.defineProperty(document, "hidden", { value: true, configurable: true });
		refresh();
		delete document.hidden;
		window.fetch = realFetch;
		return window.requests;
	})()`)
	if hidden != 0 {
		t.Error("a hidden page sends requests")
	}
}
