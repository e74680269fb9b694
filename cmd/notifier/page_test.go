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
	const hostile = "<img/src=x/onerror=alert(1)>\u202e"
	b := openBrowser(t)
	p, server, _ := worker(t, map[string]string{"LIMIT_CATEGORY": "3/30m", "ADMIN_TOKEN": token})
	admin := readyURL(t, &p.out)
	if status, _ := get(t, admin+"/"); status != http.StatusUnauthorized {
		t.Errorf("without the token: %d, expected 401", status)
	}
	b.open(t, strings.Replace(admin, "http://", "http://anyone:"+token+"@", 1))
	b.waitForText(t, "#sentence", "Sending.")

	publishEach(t, server, "errors", 5, "deploys", 1, hostile, 1)
	b.waitForText(t, "#events tbody", "deploys", "errors", "dropped", "3/30m", "<img/src=x/onerror=alert(1)>")
	b.waitForText(t, "#limits tbody", "category/errors", "3/3")
	if n := see[int](t, b, `document.querySelectorAll("img").length`); n != 0 {
		t.Error("a category has become markup")
	}
	checkRefresh(t, b, func() { publishEach(t, server, "deploys", 1) })
	for _, scheme := range []string{"light", "dark"} {
		b.prefer(t, "prefers-color-scheme", scheme)
		for _, width := range []int64{1080, 360} {
			b.do(t, chromedp.EmulateViewport(width, 740))
			if got := see[int64](t, b, "document.documentElement.scrollWidth"); got > width {
				t.Errorf("%s: the page is %d px wide in a window of %d px", scheme, got, width)
			}
			for _, faint := range see[[]string](t, b, faintTexts) {
				t.Errorf("%s, %d px: %s", scheme, width, faint)
			}
		}
	}
	checkFailures(t, b)
	if see[int](t, b, "window.sameDocument ?? 0") != 1 {
		t.Error("the page has loaded itself again")
	}

	see[bool](t, b, `document.querySelector("[name=category]").value = "deploys", document.querySelector("form button").click(), true`)
	kit.Eventually(t, "only events of the category are listed", func() bool {
		return see[string](t, b, `location.search + [...new Set([...document.querySelectorAll("#events tbody td:nth-child(2)")].map(cell => cell.textContent))]`) ==
			"?category=deploys&outcome=deploys"
	})

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

// checkRefresh publishes events and checks that a refresh keeps scroll position, selection and focus.
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
	const position = `JSON.stringify([scrollY, document.querySelector("#events .scroll").scrollLeft, getSelection().toString()])`
	see[bool](t, b, `scrollTo(0, 250), document.querySelector("#events .scroll").scrollLeft = 60,
		getSelection().selectAllChildren(document.querySelector("#events tbody tr:last-child td:last-child")), true`)
	before := see[string](t, b, position)
	if !strings.HasPrefix(before, "[250,60,") || strings.HasSuffix(before, `""]`) {
		t.Errorf("position and selection are %s before the refresh", before)
	}
	moves()
	if after := see[string](t, b, position); after != before {
		t.Errorf("the refresh has changed %s to %s", before, after)
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

// faintTexts lists the texts with a contrast below 4.5:1 (WCAG 2.2, 1.4.3). A bar counts as background too.
const faintTexts = `(() => {
	const luminance = color => {
		const [r, g, b] = color.match(/[\d.]+/g).slice(0, 3).map(v => v / 255)
			.map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
	};
	const background = e => {
		const color = e ? getComputedStyle(e).backgroundColor : "rgb(255, 255, 255)";
		return color.startsWith("rgba") ? background(e.parentElement) : color;
	};
	const texts = [...document.body.querySelectorAll("*:not(script)")]
		.filter(e => e.matches("input, select") || [...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.data.trim()));
	const faint = texts.length < 40 ? ["only " + texts.length + " texts"] : [];
	for (const e of texts) {
		const behind = [background(e)];
		const bar = e.closest(".bar")?.querySelector("rect");
		if (bar) behind.push(getComputedStyle(bar).fill);
		for (const color of behind) {
			const pair = [luminance(getComputedStyle(e).color), luminance(color)];
			const ratio = Math.max(...pair) / Math.min(...pair);
			if (ratio < 4.5) faint.push(ratio.toFixed(2) + ":1 " + e.localName + " " + e.textContent.slice(0, 40));
		}
	}
	return faint;
})()`
