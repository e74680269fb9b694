package main

import (
	"testing"

	"notifier/test/kit"
)

// TestThePageShowsRecentEvents: what the worker has logged, as far as the filter goes, which is in the
// address.
func TestThePageShowsRecentEvents(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	p, server, _ := worker(t, map[string]string{"LIMIT_CATEGORY": "1/1h"})
	b.open(t, readyURL(t, &p.out))
	b.waitForText(t, "#sentence", "Working.")
	publishEach(t, server, "errors", 2, hostile, 1)
	kit.Eventually(t, "all settled", func() bool { return len(p.out.lines(`"outcome":`)) == 3 })
	see[bool](t, b, `document.querySelector("#event-section summary").click(), true`)
	b.waitForText(t, "#events-note", "The newest 3 events.")
	b.waitForText(t, "#events tbody", "errors", "sent", "channel #alerts", "dropped category", "limit 1/1h; room ", hostileShown)
	if n := see[int](t, b, `document.querySelectorAll("img").length`); n != 0 {
		t.Error("a name has become markup")
	}

	// What is typed stays, also while the page shows newer answers.
	see[bool](t, b, `document.getElementById("event-category").focus(), document.execCommand("insertText", false, " errors ")`)
	b.waitForText(t, "#events-note", "The newest 2 events.")
	see[bool](t, b, `document.getElementById("event-outcome").value = "dropped", document.getElementById("event-outcome").dispatchEvent(new Event("input", { bubbles: true })), true`)
	b.waitForText(t, "#events-note", "The newest 1 event.")
	const filter = `(document.getElementById("event-category")?.value ?? "") + "," + (document.getElementById("event-outcome")?.value ?? "")`
	if got, focus := see[string](t, b, filter), see[string](t, b, "document.activeElement.id"); got != " errors ,dropped" || focus != "event-category" {
		t.Errorf("the filter is %q, and %q has the focus", got, focus)
	}
	if got := see[string](t, b, "location.search"); got != "?open=event-section&category=errors&outcome=dropped" {
		t.Errorf("the address has %q", got)
	}

	// A link opens them with the same filter.
	see[bool](t, b, `location.search = "?open=event-section,now,<b>&category=errors&outcome=sent", true`)
	kit.Eventually(t, "the filter is that of the link", func() bool { return see[string](t, b, filter) == "errors,sent" })
	b.waitForText(t, "#events tbody", "sent")

	// What the page does not have, as without Redis, stays in the address.
	const late = `document.getElementById("event-section").remove(), history.replaceState(null, "", "?open=event-section&category=x"), remember(), location.search`
	if got := see[string](t, b, late); got != "?open=event-section&category=x" {
		t.Errorf("the address has %q", got)
	}
}
