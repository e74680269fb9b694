package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"notifier/test/kit"
)

// stubEvents answers api/events with what a worker could answer, and notes what was asked.
const stubEvents = `(() => {
	window.asked = [];
	const real = window.fetch, foreign = "<img src=x onerror=alert(1)>\u202e", time = new Date().toISOString();
	const events = [
		{ time, event_id: "1", category: "errors", outcome: "dropped", reason: "category", limit: "10/30m", retry_after_s: 90, left_out: 7, left_out_others: 2, seq: 9 },
		{ time, event_id: foreign, category: foreign, source: foreign, outcome: foreign, reason: foreign, detail: foreign, channel: foreign, seq: 9 },
		{ time, event_id: "2", category: "errors", outcome: "sent", channel: "#alerts", ambiguous: true, seq: 7 },
		{ time, event_id: "3", category: "x", outcome: "dropped", reason: "muted", mute: "x", muted_by: foreign, seq: 6 },
		{ time, event_id: "4", category: "x", outcome: "dead", reason: "malformed", detail: "no text", no_letter: true, seq: 5 },
	];
	window.fetch = async (url, options) => {
		if (!String(url).includes("/api/events")) return real(url, options);
		window.asked.push(new URL(url).search);
		if (window.refusal) return new Response(JSON.stringify({ error: foreign }), { status: 503 });
		const query = new URL(url).searchParams, chosen = events.filter(e => [null, e.outcome].includes(query.get("outcome")) && [null, e.category].includes(query.get("category")));
		return new Response(JSON.stringify({ time, events: chosen, partial: true }));
	};
	return true;
})()`

// readEvents is what people read of the table of recent events, without its times.
const readEvents = `Array.from(document.querySelectorAll("#events tbody tr"), tr => Array.from(tr.children, cell => cell.textContent).slice(1).join(" | "))`

func TestThePageShowsRecentEvents(t *testing.T) {
	t.Parallel()
	b := openWorkingPage(t)
	see[bool](t, b, stubEvents)
	see[bool](t, b, `pollEvents(), true`)
	if n := see[int](t, b, `window.asked.length`); n != 0 {
		t.Error("the events are asked for before anybody has opened them")
	}
	see[bool](t, b, `document.querySelector("#event-section summary").click(), true`)
	b.waitForText(t, "#events-note", "The newest 5 events. Besides, 9 events were not recorded, because there were too many. There may be others, which were not looked at.")
	const shown = "<img src=x onerror=alert(1)>\ufffd"
	want := []string{
		"errors | dropped category | limit 10/30m, room after 1 min 30 s; 9 more were not recorded | 1 | ",
		shown + " | " + shown + " " + shown + " | " + shown + "; " + shown + " | " + shown + " | " + shown,
		"errors | sent | in #alerts; may be there twice | 2 | ",
		"x | dropped muted | mute of x by " + shown + " | 3 | ",
		"x | dead malformed | no text; no dead letter | 4 | ",
	}
	if diff := cmp.Diff(want, see[[]string](t, b, readEvents)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := see[int](t, b, `document.querySelectorAll("img").length`); n != 0 {
		t.Error("a name has become markup")
	}

	see[bool](t, b, `document.getElementById("event-category").value = " errors ", document.getElementById("event-category").dispatchEvent(new Event("input")), true`)
	kit.Eventually(t, "two are shown", func() bool { return see[int](t, b, `document.querySelectorAll("#events tbody tr").length`) == 2 })
	see[bool](t, b, `document.getElementById("event-outcome").value = "dead", document.getElementById("event-outcome").dispatchEvent(new Event("change")), true`)
	b.waitForText(t, "#events-note", "There are none.")
	if got := see[string](t, b, `window.asked.at(-1)`); got != "?n=100&category=errors&outcome=dead" {
		t.Errorf("asked for %q", got)
	}
	if got := see[string](t, b, "location.search"); got != "?open=event-section&category=errors&outcome=dead" {
		t.Errorf("the address has %q", got)
	}
	see[bool](t, b, `window.refusal = true, pollEvents(), true`)
	b.waitForText(t, "#events-note", "Not known: "+shown)

	// One that was replaced by another says nothing, whatever its end.
	see[bool](t, b, `window.refusal = false, pollEvents(), pollEvents(), pollEvents(), true`)
	b.waitForText(t, "#events-note", "There are none.")
	see[bool](t, b, `document.querySelector("#event-section summary").click(), true`)
	kit.Eventually(t, "they are closed", func() bool { return see[int](t, b, `document.querySelectorAll("details[open]").length`) == 0 })
	before := see[int](t, b, `window.asked.length`)
	see[bool](t, b, `pollEvents(), true`)
	if after := see[int](t, b, `window.asked.length`); after != before {
		t.Error("the events are asked for although nobody looks at them")
	}

	b.expectFailures(true) // the worker may have no such events
	// A link opens them with the same filter.
	see[bool](t, b, `location.search = "?open=event-section,now,<b>&category=errors&outcome=sent", true`)
	kit.Eventually(t, "the filter is that of the link", func() bool {
		return see[string](t, b, `(document.getElementById("event-category")?.value ?? "") + " " + (document.getElementById("event-outcome")?.value ?? "")`) == "errors sent"
	})
}

// TestRecentEventsAreThoseOfTheWorker: the page's table has what the worker has logged.
func TestRecentEventsAreThoseOfTheWorker(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	p, server, _ := worker(t, map[string]string{"LIMIT_CATEGORY": "1/1h"})
	b.open(t, readyURL(t, &p.out))
	b.waitForText(t, "#sentence", "Working.")
	publishEach(t, server, "errors", 2, hostile, 1)
	kit.Eventually(t, "all settled", func() bool { return len(p.out.lines(`"outcome":`)) == 3 })
	see[bool](t, b, `document.querySelector("#event-section summary").click(), true`)
	b.waitForText(t, "#events-note", "The newest 3 events.")
	b.waitForText(t, "#events tbody", "errors", "sent", "in #alerts", "dropped category", "limit 1/1h, room after ", hostileShown)
	see[bool](t, b, `document.getElementById("event-outcome").value = "dropped", document.getElementById("event-outcome").dispatchEvent(new Event("change")), true`)
	b.waitForText(t, "#events-note", "The newest 1 event.")
	if n := see[int](t, b, `document.querySelectorAll("#events tbody tr").length`); n != 1 {
		t.Errorf("%d rows, expected the one that was dropped", n)
	}
}
