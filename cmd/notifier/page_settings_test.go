package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// settingsOnThePage shows a status with orders and forecasts, and returns what people read of it.
const settingsOnThePage = `(() => {
	const later = new Date(Date.parse(state.data.time) + 90000).toISOString(), foreign = "<b>\u202e";
	const scope = (category, forecast) => ({ category, forecast, tiers: [{ limit: "10/30m", used: 1, max: 10, free_in_s: 0 }], next_free: null, sent_last_hour: 0, dropped_last_hour: 0, last_sent: null, minutes: [] });
	const shown = [], first = state.data;
	const look = changes => {
		state.data = { ...first, ...changes };
		show(state.data);
		tick();
		const read = (path, of) => Array.from(document.querySelectorAll(path), of);
		shown.push({
			NoReplicas: !document.getElementById("no-replicas").hidden,
			Steering: read("#steering li, #more-steering", li => li.textContent.replace(/until [\d: -]+/, "until then")).filter(Boolean),
			Next: read("#categories tbody tr", tr => tr.querySelector(".name").textContent + ": " + tr.querySelector(".next").textContent.replace(/\d+:\d+:\d+/, "then").replace(/in \d[^,]*/, "in a while").trim()),
		});
	};
	look({ categories: [scope("room", { sends: true })], settings: undefined });
	look({
		categories: [
			scope("room", { sends: true }), scope("waits", { sends: false, reason: "global", limit: "5/1h", at: later }), scope("of a group", { sends: false, reason: "group", limit: "5/1h", at: later }),
			scope("full", { sends: false, reason: "category", limit: "5/1h", at: later }), scope("kept", { sends: false, reason: "global", limit: "5/1h", at: later, kept: 3, left: 2 }),
			scope("used up", { sends: false, reason: "global", limit: "5/1h", at: later, kept: 3 }),
			scope("muted", { sends: false, reason: "muted", at: later }), scope("_other", null),
		],
	});
	look({
		categories: [], replicas: [], more_replicas: 3,
		steering: [{ kind: "mute", target: foreign, until: later, by: "a\u202e", reason: "b\u202e" }], more_steering: 2,
	});
	look({ categories: [], replicas: [], steering: [] });
	return shown;
})()`

// settingsShown is what settingsOnThePage returns.
type settingsShown struct {
	NoReplicas     bool
	Steering, Next []string
}

func TestThePageShowsForecastsAndOrders(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	p, _, _ := worker(t, nil)
	b.open(t, readyURL(t, &p.out))
	b.waitForText(t, "#sentence", "Working.")
	want := []settingsShown{
		{Steering: []string{}, Next: []string{"room: now"}},
		{
			Steering: []string{},
			Next: []string{
				"room: now", "waits: then in a while, global limit", "of a group: then in a while, group limit", "full: then in a while",
				"kept: then in a while, at the earliest: kept for others", "used up: then in a while, at the earliest: global limit", "muted: then in a while, muted", "other categories: now",
			},
		},
		{
			Next:     []string{},
			Steering: []string{"mute of <b>\ufffd until then, by a\ufffd: b\ufffd", "and 2 more"},
		},
		{NoReplicas: true, Steering: []string{}, Next: []string{}},
	}
	if diff := cmp.Diff(want, see[[]settingsShown](t, b, settingsOnThePage)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
