package status

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/internal/term"
	"notifier/test/kit"
)

// names are the categories of scopes.
func names(scopes []Scope) []string {
	list := make([]string, len(scopes))
	for i, scope := range scopes {
		list[i] = scope.Category
	}
	return list
}

// What is dropped has a place, whatever its name is and however many others are full or were busy later.
func TestWhatBurnsIsShown(t *testing.T) {
	k := &known{hour: stats.Hour{Now: now}, usages: []ratelimit.Usage{{Tier: tier(1000, time.Minute)}}}
	minute := stats.Minute{Start: now, Counts: []stats.Count{count("zz-burns", "dropped", "category", 900), count("zz-dead", "dead", "malformed", 9000)}}
	for i := range mostEntries {
		k.categories = append(k.categories, fmt.Sprintf("c%04d", i))
	}
	k.entries, k.hour.Minutes = 100_000, []stats.Minute{minute}
	for i := range mostLookedAt - 1 {
		k.usages = append(k.usages, ratelimit.Usage{Category: k.categories[i], Tier: tier(1, time.Minute), Used: 1})
	}
	k.usages = append(k.usages, ratelimit.Usage{Category: "zz-burns", Tier: tier(10, time.Minute), Used: 5})
	got, err := k.source().Read(t.Context())
	kit.Check(t, err)
	if len(k.asked) != mostLookedAt || k.asked[0] != "zz-burns" || k.asked[1] != "c0000" {
		t.Errorf("asked for %d categories, %q first; expected %d, what is dropped and then what was busy last", len(k.asked), k.asked[:2], mostLookedAt)
	}
	shown := names(got.Categories)
	if len(shown) != mostCategories || shown[len(shown)-1] != "zz-burns" || got.Categories[len(shown)-1].Dropped != 900 {
		t.Errorf("%d shown, %q last; expected %d, and the half full one with 900 drops last", len(shown), shown[len(shown)-1], mostCategories)
	}
	if want := 100_000 + 2 - mostCategories; got.More != want { // the two that the index does not have
		t.Errorf("%d more, expected %d", got.More, want)
	}
}

// Nobody can publish to the category that we count the others as.
func TestOurNameIsNobodysCategory(t *testing.T) {
	k := &known{
		categories: []string{"_other"},
		usages:     []ratelimit.Usage{{Tier: tier(100, time.Minute)}, {Category: "_other", Tier: tier(10, time.Minute), Used: 3}},
		slots:      []ratelimit.Slot{{ID: "e", Category: "_other"}},
		hour: stats.Hour{Now: now, Minutes: []stats.Minute{{Start: now, Counts: []stats.Count{
			count("_other", "dropped", "global", 7), count("__other", "sent", "", 3),
		}}}},
	}
	got, err := k.source().Read(t.Context())
	kit.Check(t, err)
	if !slices.Equal(k.asked, []string{"_other"}) {
		t.Errorf("asked for %q, expected the publisher's _other once", k.asked)
	}
	for _, scope := range got.Categories {
		if theirs := scope.Category == "__other"; theirs != (len(scope.Tiers) == 1) || theirs != (scope.Sent == 3) || theirs != (scope.Dropped == 0) {
			t.Errorf("%+v, expected theirs to be __other, with a limit and 3 sent, and ours to have 7 drops", scope)
		}
	}
	if len(got.Categories) != 2 || got.More != 0 || got.Holders[0].Category != "__other" || got.Slots[0].Category != "__other" {
		t.Errorf("%q shown, %d more, held by %v", names(got.Categories), got.More, got.Holders)
	}
}

// A status has a bound in bytes, and what matters least is left out first.
func TestAStatusFits(t *testing.T) {
	long := strings.Repeat("\u202e", 64) // six bytes each as JSON, three before they are escaped
	full := func(categories, slots int) Status {
		s := Status{Time: now, Global: Scope{Tiers: []Tier{{Limit: "100/30m", Used: 12, Max: 100}}}}
		for i := range 60 {
			s.Global.Minutes = append(s.Global.Minutes, Minute{now.Add(time.Duration(i) * time.Minute), 1000, 1000})
		}
		for i := range categories {
			s.Categories = append(s.Categories, Scope{Category: fmt.Sprint(long, i), Tiers: s.Global.Tiers, NextFree: &now, LastSent: &now, Minutes: s.Global.Minutes})
		}
		for i := range slots {
			s.Slots = append(s.Slots, ratelimit.Slot{ID: fmt.Sprint("e", i), Category: long, At: now, Frees: now})
		}
		return s
	}
	for _, test := range []struct{ categories, slots int }{{0, 0}, {0, 1000}, {8, 10}, {20, 10}, {60, 0}, {100, 1000}} {
		s := full(test.categories, test.slots)
		s.fit(mostBytes)
		var body strings.Builder
		kit.Check(t, term.NewJSON(&body).Encode(s))
		if body.Len() > mostBytes || len(s.Global.Minutes) != 60 {
			t.Errorf("%+v: %d bytes with %d minutes of the global limit, expected at most %d with 60", test, body.Len(), len(s.Global.Minutes), mostBytes)
		}
		if len(s.Categories)+s.More != test.categories || len(s.Categories) < min(test.categories, 25) {
			t.Errorf("%+v: %d categories and %d more", test, len(s.Categories), s.More)
		}
		if len(s.Slots)+s.MoreSlots != test.slots || s.Unread != 0 {
			t.Errorf("%+v: %d slots and %d more, %d not read", test, len(s.Slots), s.MoreSlots, s.Unread)
		}
		without := slices.IndexFunc(s.Categories, func(scope Scope) bool { return scope.Minutes == nil })
		if without >= 0 && slices.ContainsFunc(s.Categories[without:], func(scope Scope) bool { return scope.Minutes != nil }) {
			t.Errorf("%+v: a category without minutes stands above one that has them", test)
		}
		if test.categories == 8 && without >= 0 {
			t.Errorf("%+v: minutes are left out although there is room", test)
		}
	}
}
