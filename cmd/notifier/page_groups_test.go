package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// levelsOnThePage shows a status with groups, reserves and limits in buckets, and returns what people read of it.
const levelsOnThePage = `(() => {
	const time = state.data.time, later = new Date(Date.parse(time) + 90000).toISOString(), foreign = "<b>\u2069\u202e";
	const tier = (limit, used, max, more) => ({ limit, used, max, free_in_s: 0, ...more });
	const scope = more => ({ next_free: null, sent_last_hour: 0, dropped_last_hour: 0, last_sent: null, minutes: [], ...more });
	const forecast = { sends: false, reason: "group", limit: "50/30m", at: later };
	const full = { next_free: later, forecast, tiers: [tier("50/30m", 50, 50, { free_in_s: 90 })] };
	const shown = [];
	const look = changes => {
		state.data = { ...state.data, ...changes };
		show(state.data);
		tick();
		const text = id => document.querySelector(id).textContent;
		const row = tr => [tr.querySelector(".name").textContent, tr.querySelector(".used").textContent, tr.querySelector(".next small").textContent.replace(/^in [^,]+/, "in a while")].join(" | ");
		shown.push({
			Global: Array.from(document.querySelectorAll("#tiers .tier"), t => t.textContent).join("; "),
			Kept: text("#reserves"), Holders: text("#holders"), Timeline: text("#timeline-text"),
			Groups: Array.from(document.querySelectorAll("#groups tbody tr"), row), Categories: Array.from(document.querySelectorAll("#categories tbody tr"), row),
			Hidden: document.querySelector("#group-section").hidden, More: text("#more-groups"),
		});
	};
	look({ groups: undefined, reserves: undefined, slots: [], holders: [] });
	look({
		global: scope({ tiers: [tier("100/24h:15m", 40, 100, { kept: 3 }), tier("9/1h:fixed", 1, 9)] }), slots_in_buckets: true, slots: [], holders: [],
		reserves: [{ category: "payments", slots: 5, used: 2, kept: 3 }, { category: foreign, slots: 1, used: 1, kept: 0 }], more_reserves: 2,
		groups: [scope({ group: "team-a", ...full }), scope({ group: foreign, tiers: [tier("7/24h:fixed", 3, 7)] })], more_groups: 150,
		categories: [scope({ category: "team-a.job1", group: "team-a", forecast, tiers: [tier("10/30m", 1, 10)] }), scope({ category: "errors", tiers: [tier("10/30m", 1, 10)] })],
	});
	look({ global: scope({ tiers: [tier("100/24h:15m", 97, 100, { kept: 3 })] }) });
	return shown;
})()`

// levelsShown is what levelsOnThePage returns.
type levelsShown struct {
	Global, Kept, Holders, Timeline string
	Groups, Categories              []string
	Hidden                          bool
	More                            string
}

func TestThePageShowsGroupsAndReserves(t *testing.T) {
	t.Parallel()
	b := openWorkingPage(t)
	got := see[[]levelsShown](t, b, levelsOnThePage)
	group, kept := []string{"team-a | 50 of 50 in 30m | in a while", "<b>\ufffd\ufffd | 3 of 7 in the current 24h | "}, "Kept for: payments 3 of 5, <b>\ufffd\ufffd 0 of 1, and 2 more."
	categories := []string{"team-a.job1 | 1 of 10 in 30m | in a while, group limit", "errors | 1 of 10 in 30m | "}
	holders := "Who holds the slots is not known: they are counted in buckets, without the events."
	want := []levelsShown{
		{
			Global:  "0 of 100 in 30mroom now ",
			Holders: "No slots are taken.", Timeline: "All slots are free.", Groups: []string{}, Categories: []string{}, Hidden: true,
		},
		{
			Global: "40 of 100 in 24h, by 15m, 3 keptroom now ; 1 of 9 in the current 1hroom now ", Kept: kept, Holders: holders,
			Timeline: "40 slots of 100/24h:15m are taken. When each is free is not known: they are counted in buckets.",
			Groups:   group, Categories: categories, More: "and at least 150 more groups",
		},
		{
			Global: "97 of 100 in 24h, by 15m, 3 keptroom only for those it is kept for ", Kept: kept, Holders: holders,
			Timeline: "97 slots of 100/24h:15m are taken. When each is free is not known: they are counted in buckets.",
			Groups:   group, Categories: categories, More: "and at least 150 more groups",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
