package preflight

import (
	"strings"
	"testing"

	"notifier/internal/ratelimit"
	"notifier/internal/settings"
	"notifier/test/kit"
)

// TestNeverFirst: which limits have no effect next to a wider one.
func TestNeverFirst(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		category, global string
		want             bool
	}{
		{"10/30m", "100/30m", false}, {"100/30m", "100/30m", true}, {"200/30m", "100/30m", true}, {"100/10m", "100/30m", true},
		{"100/30m:fixed", "100/30m", true}, {"100/30m", "100/30m:fixed", false}, {"200/30m", "100/30m:fixed", true}, {"199/30m", "100/30m:fixed", false},
		{"100/30m:fixed", "100/30m:fixed", true}, {"100/30m:fixed", "100/1h:fixed", true}, {"100/40m:fixed", "100/1h:fixed", false},
		{"100/30m:5m", "100/30m", false}, {"100/25m:5m", "100/30m", true}, {"100/30m:5m", "100/30m:5m", true}, {"100/30m", "100/30m:5m", true},
		{"", "100/30m", false}, {"100/30m", "", false},
		{"100/1h", "100/30m", false}, {"200/30m+1/5s", "100/30m", false}, {"10/1m", "100/30m+5/1m", true},
	} {
		category, err := ratelimit.ParseGroupLimit(test.category) // which may be empty
		kit.Check(t, err)
		global, err := ratelimit.ParseGroupLimit(test.global)
		kit.Check(t, err)
		if got := neverFirst(category, global); got != test.want {
			t.Errorf("%s beside %s: %t, expected %t", test.category, test.global, got, test.want)
		}
	}
}

// levels are limits of groups and reserves that are valid each by itself, and what is found in them.
var levels = map[string]struct {
	change func(env *settings.Environment)
	want   []string // findings, with their level
	never  []string
}{
	"no groups": {
		func(*settings.Environment) {},
		[]string{"ok  100/30m overall, 10/30m per category"}, []string{"group", "reserved"},
	},
	"groups that fit": {
		func(env *settings.Environment) {
			env.LimitGroup, env.LimitGroupOverrides, env.LimitOverrides = "40/30m", "team-a=50/30m:5m", "team-a.>=30/30m"
		},
		[]string{"ok  100/30m overall, 40/30m per group, 10/30m per category", "ok  50/30m:5m for the group team-a", "ok  30/30m for team-a.>"},
		[]string{"warn"},
	},
	"groups that are never the first to refuse": {
		func(env *settings.Environment) { env.LimitGroup, env.LimitGroupOverrides = "100/30m", "team-a=150/10m" },
		[]string{
			"warn  the group limit 100/30m allows everything that the global limit 100/30m allows: one alone can take every slot; set it lower in LIMIT_GROUP",
			"warn  the limit of the group team-a 150/10m allows everything that the global limit 100/30m allows",
		}, []string{"category limit"},
	},
	"categories that are never the first to refuse": {
		func(env *settings.Environment) {
			env.LimitGlobal, env.LimitCategory = "20/30m0s+5/1m", "20/30m+6/1m"
			env.LimitOverrides = "errors=30/10m,db=19/30m,tight=1000/1h+1/1s"
		},
		[]string{
			"ok  20/30m+5/1m overall, 20/30m+6/1m per category",
			"warn  the category limit 20/30m+6/1m allows everything that the global limit 20/30m+5/1m allows",
			"warn  the limit of errors 30/10m allows everything", "ok  19/30m for db",
		}, []string{"limit of db", "limit of tight"},
	},
	"categories wider than their group": {
		func(env *settings.Environment) {
			env.LimitGroup, env.LimitGroupOverrides, env.LimitOverrides = "10/30m", "team-a=5/30m,team-b=20/30m", "team-b.x=20/30m,team-b.*=19/30m,*.y=10/30m"
		},
		[]string{
			"warn  the category limit 10/30m allows everything that the group limit 10/30m allows: one alone can take every slot; set it lower in LIMIT_CATEGORY",
			"warn  the category limit 10/30m allows everything that the limit of the group team-a 5/30m allows",
			"warn  the limit of team-b.x 20/30m allows everything that the limit of its group 20/30m allows",
			"warn  the limit of *.y 10/30m allows everything that the limit of its group 10/30m allows: one alone can take every slot; set it lower in LIMIT_OVERRIDES",
		}, []string{"limit of team-b.*", "the group team-b 20/30m allows", "global limit 100/30m allows"},
	},
	"a reserve": {
		func(env *settings.Environment) {
			env.LimitGlobal, env.LimitReserve = "100/30m+3/5s", "payments=5,errors=10"
		},
		[]string{
			"ok  15 of the global limit's 100 slots reserved: 10 for errors and 5 for payments",
			"note  the global tier 3/5s keeps no slots for anybody: it has no more than the 15 that are reserved",
		}, []string{"warn"},
	},
	"a reserve that nobody can use": {
		func(env *settings.Environment) {
			env.LimitGlobal, env.LimitReserve, env.LimitGroupOverrides = "100/1h", "payments=21,errors=20,team-a.x=15", "team-a=7/30m"
		},
		[]string{
			"warn  21 slots are reserved for payments, and its limit 10/30m allows at most 20 in 1h: nobody can use the others; reserve fewer in LIMIT_RESERVE",
			"warn  15 slots are reserved for team-a.x, and the limit of its group 7/30m allows at most 14 in 1h",
		}, []string{"reserved for errors", "for team-a.x, and its limit"},
	},
	"a precision without effect": {
		func(env *settings.Environment) {
			env.LimitGlobal, env.LimitOverrides = "100/30m:1m", "a=5/30m:1m+1/5s,b=5/30m:fixed"
		},
		[]string{"note  the limit 5/30m:1m+1/5s keeps each event, because one of its tiers has no precision"}, []string{"the limit 100/30m:1m keeps", "5/30m:fixed keeps"},
	},
}

// TestLevelsThatDoNotFit: what check finds in limits of groups and in reserves, and what not.
func TestLevelsThatDoNotFit(t *testing.T) {
	t.Parallel()
	for name, test := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := parsed(t, test.change)
			s.Store.Limits.Pace = ratelimit.Tier{} // is another test's
			var lines []string
			for _, finding := range found(t, checkLimits, s) {
				lines = append(lines, line(finding))
			}
			all := strings.Join(lines, "\n")
			for _, want := range test.want {
				if !strings.Contains(all, want) {
					t.Errorf("%q is not in\n%s", want, all)
				}
			}
			for _, never := range test.never {
				if strings.Contains(all, never) {
					t.Errorf("%q is in\n%s", never, all)
				}
			}
		})
	}
}
