package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/internal/term"
	"notifier/test/kit"
)

// used is a usage of the group or the category.
func used(group, category string, used int, tier ratelimit.Tier) ratelimit.Usage {
	return ratelimit.Usage{Group: group, Category: category, Used: used, Tier: tier}
}

// levels are a status with all that a limit can be.
func levels() *known {
	day, half := 24*time.Hour, 30*time.Minute
	return &known{
		categories: []string{"team-a.job1", "payments"},
		usages: []ratelimit.Usage{
			used("", "", 97, ratelimit.Tier{Count: 100, Window: day, Precision: 15 * time.Minute}),
			used("", "", 1, ratelimit.Tier{Count: 2, Window: 5 * time.Second, Precision: time.Second}),
			{Group: "team-a", Used: 50, FreeIn: 90 * time.Second, Tier: tier(50, half)},
			used("", "team-a.job1", 8, ratelimit.Tier{Count: 200, Window: day, Fixed: true}),
			used("", "payments", 2, tier(10, half)),
			used("", "team-a.job2", 3, tier(10, half)),
		},
		hour: stats.Hour{
			Now: now,
			Minutes: []stats.Minute{
				{Start: now.Add(-time.Minute), Counts: []stats.Count{
					count("payments", "sent", "", 2), count("team-a.job1", "dropped", "group", 5),
					count("team-a.job2", "sent", "", 3), count("team-a.unknown", "dropped", "group", 1), count("team-ab.job", "sent", "", 7),
				}},
				{Start: now, Counts: []stats.Count{count("team-a.job1", "dropped", "reply", 4), count("team-a.job1", "dropped", "global", 4)}},
			},
			LastSent: map[string]time.Time{"team-a.job2": now.Add(-time.Second), "team-a.job1": now.Add(-time.Hour)},
		},
		reserves: []ratelimit.Reserve{
			{Category: "_other", Tier: ratelimit.Tier{Count: 100, Window: day, Precision: 15 * time.Minute}, Slots: 2},
			{Category: "payments", Tier: ratelimit.Tier{Count: 100, Window: day, Precision: 15 * time.Minute}, Slots: 5, Used: 2, Kept: 3},
		},
	}
}

func TestAStatusShowsGroupsAndReserves(t *testing.T) {
	got, err := levels().source().Read(t.Context())
	kit.Check(t, err)
	at := func(d time.Duration) *time.Time { moment := now.Add(d); return &moment }
	groups := []Scope{{
		Group: "team-a", Tiers: []Tier{{Limit: "50/30m", Used: 50, Max: 50, FreeS: 90}}, NextFree: at(90 * time.Second),
		Forecast: &Forecast{Reason: "group", Limit: "50/30m", At: at(90 * time.Second)},
		Sent:     3, Dropped: 10, LastSent: at(-time.Second), Minutes: []Minute{{now.Add(-time.Minute), 3, 6}, {now, 0, 4}},
	}}
	if diff := cmp.Diff(groups, got.Groups); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Tier{{Limit: "100/24h:15m", Used: 97, Max: 100, Kept: 3}, {Limit: "2/5s:1s", Used: 1, Max: 2}}, got.Global.Tiers); diff != "" {
		t.Errorf("the global limit (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(append([]ratelimit.Reserve{{Category: "__other", Tier: levels().reserves[0].Tier, Slots: 2}}, levels().reserves[1]), got.Reserves); diff != "" {
		t.Errorf("reserves (-want +got):\n%s", diff)
	}
	ofGroup := map[string]string{}
	for _, scope := range got.Categories {
		ofGroup[scope.Category] = scope.Group + " " + scope.Tiers[0].Limit
	}
	if diff := cmp.Diff(map[string]string{"team-a.job1": "team-a 200/24h:fixed", "payments": " 10/30m", "team-a.job2": "team-a 10/30m"}, ofGroup); diff != "" {
		t.Errorf("groups of the categories (-want +got):\n%s", diff)
	}
	if !got.InBuckets {
		t.Error("a limit in buckets has no slots, and the status does not say so")
	}
	text := got.Table(term.Screen{})
	for _, want := range []string{
		"group team-a          50/30m    50/50                in 1m30s (",
		"team-a.job2           10/30m     3/10   group limit, in 1m30s (",
		"global           100/24h:15m   97/100             kept, in 1m (",
		"Who holds the global slots is not known: the limit is counted in buckets, without the events.\n",
		"Global slots are kept for: __other 0 of 2, payments 3 of 5.\nOf 100/24h:15m only 3 slots are left, and all are kept: other categories are dropped.\n",
		"dropped group 6",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// Slots that are known are shown, also where this replica would count them in buckets.
func TestKnownSlotsAreShown(t *testing.T) {
	k := levels()
	k.slots = []ratelimit.Slot{{ID: "e", Category: "payments"}}
	got, err := k.source().Read(t.Context())
	if err != nil || got.InBuckets || len(got.Holders) != 1 {
		t.Errorf("in buckets %t with %d holders, %v; expected false with 1", got.InBuckets, len(got.Holders), err)
	}
	if got, err := (&known{usages: []ratelimit.Usage{{Tier: tier(1, time.Minute)}}}).source().Read(t.Context()); err != nil || got.InBuckets {
		t.Errorf("in buckets %t, %v; expected false where each event is kept", got.InBuckets, err)
	}
}

// Who holds some slots is not known: those in buckets, from before a limit lost its precision, and the oldest
// of very many.
func TestSlotsWithoutAHolderAreCounted(t *testing.T) {
	for want, slots := range map[string][]ratelimit.Slot{
		"Global slots are held by: a 1. Who holds the other 11 is not known.":                           {{ID: "e", Category: "a"}},
		"Who holds the global slots is not known: the limit is counted in buckets, without the events.": nil,
	} {
		usages := []ratelimit.Usage{{Tier: tier(100, time.Hour), Used: 12}, {Tier: tier(5, time.Second)}}
		got, err := (&known{slots: slots, usages: usages}).source().Read(t.Context())
		if text := got.Table(term.Screen{}); err != nil || !strings.Contains(text, want+"\n") {
			t.Errorf("%v, %s\nexpected %q", err, text, want)
		}
	}
}

// What is kept is no room for others, so it is not known when they have some.
func TestWhenTheGlobalLimitHasRoom(t *testing.T) {
	k := levels()
	if _, err := k.source().NextFree(t.Context()); !errors.Is(err, errNotKnown) {
		t.Errorf("%v, expected that it is not known", err)
	}
	k.usages = k.usages[:2]
	k.usages[0].Used, k.usages[1].FreeIn = 96, 4*time.Second
	if wait, err := k.source().NextFree(t.Context()); err != nil || wait != 4*time.Second {
		t.Errorf("%s, %v; expected 4s", wait, err)
	}
	k.err = errors.New("redis is unavailable")
	if _, err := k.source().NextFree(t.Context()); err == nil || errors.Is(err, errNotKnown) {
		t.Errorf("%v, expected that of Redis", err)
	}
}

// Publishers choose the groups: their number, and the characters in them. What burns is shown all the same.
func TestTheStatusOfManyGroupsIsBounded(t *testing.T) {
	const burning = "zz-burns.job"
	odd := []string{"_other", "__other", "\u202e\x1b[2J", "<b>", `"`, "a\xff"}
	k := &known{hour: stats.Hour{Now: now}, usages: []ratelimit.Usage{{Tier: tier(1000, time.Minute)}}, entries: 10_000}
	minute := stats.Minute{Start: now, Counts: []stats.Count{count(burning, "dropped", "group", 900), count(stats.OtherCategory, "dropped", "group", 3), count("_other.x", "dropped", "group", 2)}}
	for _, group := range odd {
		k.categories = append(k.categories, group+".x")
	}
	for i := len(odd); i < mostEntries; i++ {
		k.categories = append(k.categories, fmt.Sprintf("team-%05d.job", i))
	}
	k.hour.Minutes = []stats.Minute{minute}
	looked := append([]string{burning}, k.categories[:mostLookedAt-1]...)
	for _, category := range looked {
		k.usages = append(k.usages, used(ratelimit.GroupOf(category), "", 9, tier(10, time.Minute)))
	}
	for _, category := range looked {
		k.usages = append(k.usages, used("", category, 9, tier(10, time.Minute)))
	}
	for i := range 10_000 {
		k.reserves = append(k.reserves, ratelimit.Reserve{Category: fmt.Sprintf("reserved-%05d", i), Slots: 1, Kept: 1})
	}
	k.usages[mostLookedAt/2].Used = 10 // one that is full
	got, err := k.source().Read(t.Context())
	kit.Check(t, err)
	body, err := json.Marshal(got)
	kit.Check(t, err)
	if len(body) > mostBytes || len(got.Groups)+got.MoreGroups != mostLookedAt || len(got.Reserves)+got.MoreReserves != 10_000 {
		t.Errorf("%d bytes, %d groups and %d more, %d reserves and %d more", len(body), len(got.Groups), got.MoreGroups, len(got.Reserves), got.MoreReserves)
	}

	k.reserves = nil
	if got, err = k.source().Read(t.Context()); err != nil || len(got.Groups) != mostGroups || got.MoreGroups != mostLookedAt-mostGroups {
		t.Errorf("%d groups and %d more, %v; expected %d and %d", len(got.Groups), got.MoreGroups, err, mostGroups, mostLookedAt-mostGroups)
	}
	seen := map[string]Scope{}
	for _, scope := range got.Groups {
		seen[scope.Group] = scope
	}
	if got.Groups[0].Tiers[0].Used != 10 || seen["zz-burns"].Dropped != 900 {
		t.Errorf("%+v is first, and zz-burns has %d drops; expected the full one, and 900", got.Groups[0], seen["zz-burns"].Dropped)
	}
	if _, ours := seen[stats.OtherCategory]; ours || seen["__other"].Group == "" || seen["___other"].Group == "" {
		t.Errorf("%d groups, expected theirs as __other and ___other, and none by our name", len(seen))
	}
	if dropped := seen["__other"].Dropped; dropped != 2 {
		t.Errorf("%d drops of the group _other, expected 2: its own, and none of those that we count as _other", dropped)
	}
	for _, scope := range got.Categories {
		if scope.Category == "_other.x" && scope.Group != "__other" {
			t.Errorf("_other.x shares the limit of %q, expected __other", scope.Group)
		}
	}
	if text := got.Table(term.Screen{}); strings.ContainsAny(text, "\x1b\u202e") || !strings.Contains(text, "and at least 150 groups more\n") {
		t.Errorf("%q, expected nothing that a terminal obeys, and that there are more", text)
	}
}

// What is kept is shown in the tier that it is reported for.
func TestWhichTierHasWhatIsKept(t *testing.T) {
	limit := ratelimit.Limit{tier(50, 10*time.Minute), tier(100, 30*time.Minute), tier(1, time.Second)}
	reserves := []ratelimit.Reserve{{Category: "payments", Tier: limit[1], Slots: 5, Used: 2, Kept: 3}, {Category: "deploys", Tier: limit[1], Slots: 2, Kept: 2}}
	k := &known{reserves: reserves}
	for _, tier := range limit {
		k.usages = append(k.usages, ratelimit.Usage{Tier: tier})
	}
	got, err := k.source().Read(t.Context())
	kit.Check(t, err)
	global := got.Global
	if global.Tiers[0].Kept != 0 || global.Tiers[1].Kept != 5 || global.Tiers[2].Kept != 0 {
		t.Errorf("%+v, expected 5 kept in the second tier", global.Tiers)
	}
}
