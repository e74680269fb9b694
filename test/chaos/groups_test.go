package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// The account counts a group's admissions together: it finds a group that is too full, and a refusal by one that was not full.
func TestTheAccountOfGroups(t *testing.T) {
	rules := kit.Rules("100/1h", "10/1h", "")
	rules.GroupOverrides = map[string]ratelimit.Limit{"team-a": kit.Rules("3/1h", "1/1h", "").Global}
	begun := time.Now()
	accountOf := func(admitted ...string) *account {
		a := &account{w: &world{diary: &diary{begun: begun}, register: &register{rules: rules}}, events: map[string]*event{}}
		add := func(id, category string) {
			a.events[id] = &event{id: id, category: category, cost: 1, acks: []ack{{at: begun}}}
		}
		for i, category := range admitted {
			id := fmt.Sprint("e", i)
			add(id, category)
			at := begun.UnixMicro() + int64(i)
			a.w.register.all = append(a.w.register.all, &admission{slot: category + ":" + id, at: at, last: at})
		}
		add("refused", "team-a.d")
		wait := 1.0
		a.settled = []*line{{
			life: &life{name: "w1-1"}, Time: begun.Add(time.Second), EventID: "refused", Category: "team-a.d",
			Outcome: "dropped", Reason: "group", Limit: "3/1h", RetryAfter: &wait,
		}}
		a.drops()
		a.windows()
		return a
	}
	if a := accountOf("team-a.a", "team-a.b", "team-ab.c", "team-a"); len(a.problems) > 0 {
		t.Errorf("of a full group: %q, expected no problem", a.problems)
	}
	if a := accountOf("team-a.a", "team-ab.b", "team-ab.c", "team-a"); len(a.problems) != 1 || !strings.Contains(a.problems[0], "dropped by 3/1h, when no more than 2 were taken") {
		t.Errorf("of a group with room: %q, expected that it was not full", a.problems)
	}
	if a := accountOf("team-a.a", "team-a.b", "team-a.c", "team-a"); a.overfull != 1 || !strings.HasPrefix(a.problems[0], "group team-a: 4 slots in the 1h0m0s until ") {
		t.Errorf("of a group with too many: %q", a.problems)
	}
}

// A slot whose refund Redis has forgotten counts until the refund and not after it, and so do all slots of a costly event.
func TestTheAccountOfForgottenRefunds(t *testing.T) {
	rules, begun := kit.Rules("100/1h", "3/1h", ""), time.Now().UnixMicro()
	overfull := func(refund int64) int {
		a := &account{w: &world{diary: &diary{}, register: &register{rules: rules}}, events: map[string]*event{}, forgotten: map[string]int64{"e0": refund}}
		for i, slot := range []string{"a:e0", "a:e0 2", "a:e1", "a:e2", "a:e3"} {
			a.events[idOf(slot)] = &event{id: idOf(slot), category: "a", cost: 1}
			at := begun + int64(i)
			a.w.register.all = append(a.w.register.all, &admission{slot: slot, at: at, last: begun + 10})
		}
		a.windows()
		return a.overfull
	}
	if n := overfull(begun + 2); n != 0 {
		t.Errorf("%d windows are too full, expected none: two slots were refunded when the last two were taken", n)
	}
	if n := overfull(begun + 4); n != 1 {
		t.Errorf("%d windows are too full, expected one: the refund came after the last slot was taken", n)
	}
}
