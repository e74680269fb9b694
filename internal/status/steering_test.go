package status

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/internal/steering"
	"notifier/internal/term"
	"notifier/test/kit"
)

// asked is what operators have asked for.
type asked struct{ steering.State }

func (a asked) Read(context.Context) (steering.State, error) { return a.State, nil }

func (a *asked) add(t *testing.T, order steering.Order, err error, length time.Duration) {
	t.Helper()
	kit.Check(t, err)
	order.Since, order.Until = now, now.Add(length)
	a.Orders = append(a.Orders, order)
}

// TestWhatOperatorsHaveAskedFor is in force for what is read, and shown with who, until when and why; what
// has ended is not.
func TestWhatOperatorsHaveAskedFor(t *testing.T) {
	k := &known{hour: stats.Hour{Now: now}, usages: []ratelimit.Usage{{Tier: tier(100, time.Minute)}}}
	source, _ := k.reading(worker(t, "99/1h"))
	orders := &asked{steering.State{Now: now}}
	mute, err := steering.NewMute("errors.>", "alice@ops", "being moved")
	orders.add(t, mute, err, time.Hour)
	over, err := steering.NewMute("over", "alice@ops", "")
	orders.add(t, over, err, -time.Second)
	limit, err := steering.NewLimit("category/errors", "7/1h", "bob@ops", "")
	orders.add(t, limit, err, 2*time.Hour)
	source.Steering = orders
	var instead ratelimit.Temporary
	source.LimiterFor = func(_ ratelimit.Rules, _ time.Duration, with ratelimit.Temporary) (Limiter, error) {
		instead = with
		return k, nil
	}
	got, err := source.Read(t.Context())
	kit.Check(t, err)
	if len(got.Steering) != 2 || instead.Categories["errors"].String() != "7/1h" || len(instead.Categories) != 1 {
		t.Errorf("%+v, and read with %+v", got.Steering, instead)
	}
	table := got.Table(term.Screen{})
	for _, line := range []string{
		"mute of errors.> until " + now.Add(time.Hour).Format(time.RFC3339) + " (1h), by alice@ops: being moved\n",
		"limit 7/1h of category/errors until " + now.Add(2*time.Hour).Format(time.RFC3339) + " (2h), by bob@ops\n",
	} {
		if !strings.Contains(table, line) {
			t.Errorf("no line %q in\n%s", line, table)
		}
	}
	explained, err := source.Explain(t.Context(), "errors")
	kit.Check(t, err)
	own := explained.Limits[len(explained.Limits)-1]
	if own.ForAWhile == nil || own.ForAWhile.By != "bob@ops" || own.Limit != "7/1h" || explained.Limits[0].ForAWhile != nil {
		t.Errorf("%+v", explained.Limits)
	}
	if explained, err = source.Explain(t.Context(), "errors.db"); err != nil || explained.Mute == nil || explained.Mute.Reason != "being moved" {
		t.Errorf("%+v, %v", explained.Mute, err)
	}
}

// TestATemporaryLimitThatEndsSooner: there may be room when it ends, so when its own slots are free is too
// late, for each scope and with reserves.
func TestATemporaryLimitThatEndsSooner(t *testing.T) {
	for _, c := range []struct{ scope, group, category string }{
		{"global", "", ""}, {"group/a", "a", ""}, {"category/a.x", "", "a.x"},
	} {
		t.Run(c.scope, func(t *testing.T) {
			k := &known{
				hour: stats.Hour{Now: now}, categories: []string{"a.x"},
				usages: []ratelimit.Usage{
					{Tier: tier(100, time.Hour)}, {Group: "a", Tier: tier(100, time.Hour)}, {Category: "a.x", Tier: tier(100, time.Hour)},
				},
			}
			for i, u := range k.usages {
				if u.Group == c.group && u.Category == c.category {
					k.usages[i] = full(u.Group, u.Category, 30*time.Minute)
				}
			}
			source, _ := k.reading(worker(t, "99/1h"))
			orders := &asked{steering.State{Now: now}}
			limit, err := steering.NewLimit(c.scope, "5/1h", "bob", "")
			orders.add(t, limit, err, 2*time.Minute)
			source.Steering = orders
			k.reserves = []ratelimit.Reserve{{Category: "payments", Tier: tier(5, time.Hour), Slots: 1, Kept: 1}}
			got, err := source.Read(t.Context())
			kit.Check(t, err)
			f := got.Categories[0].Forecast
			if f.Sends || f.At == nil || !f.At.Equal(now.Add(2*time.Minute)) || !f.AtLeast {
				t.Errorf("%+v, expected in at least two minutes", f)
			}
			if c.scope == "global" {
				if _, err := source.NextFree(t.Context()); !errors.Is(err, errNotKnown) {
					t.Errorf("%v, expected that it is not known when there is room", err)
				}
			}
		})
	}
}

// TestALimitBesideOneThatEndsSooner: the script names the tier whose slots are free last, whatever ends.
func TestALimitBesideOneThatEndsSooner(t *testing.T) {
	k := &known{hour: stats.Hour{Now: now}, categories: []string{"a"}}
	k.usages = []ratelimit.Usage{full("", "", 10*time.Minute), full("", "a", 30*time.Minute)}
	source, _ := k.reading(worker(t, "99/1h"))
	orders := &asked{steering.State{Now: now}}
	limit, err := steering.NewLimit("category/a", "5/1h", "bob", "")
	orders.add(t, limit, err, 2*time.Minute)
	source.Steering = orders
	got, err := source.Read(t.Context())
	kit.Check(t, err)
	at := now.Add(10 * time.Minute)
	want := &Forecast{Reason: "category", Limit: "5/1h", At: &at, AtLeast: true}
	if diff := cmp.Diff(want, got.Categories[0].Forecast); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestManyOrdersAreBounded: a status names fifty of them, or fewer where they are long.
func TestManyOrdersAreBounded(t *testing.T) {
	k := &known{hour: stats.Hour{Now: now}, usages: []ratelimit.Usage{{Tier: tier(100, time.Minute)}}}
	source, _ := k.reading(worker(t, "99/1h"))
	orders := &asked{steering.State{Now: now}}
	for i := range steering.MostOrders {
		order, err := steering.NewMute(fmt.Sprintf("c%d", i), strings.Repeat("x", 100), strings.Repeat("<", 200))
		orders.add(t, order, err, time.Hour)
	}
	source.Steering = orders
	got, err := source.Read(t.Context())
	kit.Check(t, err)
	if len(got.Steering) != 50 || got.MoreSteering != 950 || !strings.Contains(got.Table(term.Screen{}), "1000 mutes and temporary limits are in force\n") {
		t.Errorf("%d and %d more", len(got.Steering), got.MoreSteering)
	}
}
