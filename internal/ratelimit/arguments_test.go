package ratelimit_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/lua"
	"notifier/test/kit"
)

// These tests call admit.lua directly, as another program might. It rejects invalid calls.

// rawCall holds the keys and arguments of admit.lua. Each part is a list of rows, without its length.
type rawCall struct {
	header, rules, scopes, reservations, origins []any
	categories                                   []string // one scope each, after the global one
	ids, deliveries, numbers, costs              []any
	otherKeys                                    *strings.Replacer // renames keys unless nil
}

// newRawCall returns a valid call for two new events of category a. Of the other categories, one has a
// reserved slot and one is unused. The rules are 9/30m and 5/30m, and entries are kept for 30 minutes.
func newRawCall() rawCall {
	window := 30 * time.Minute.Microseconds()
	keep := window
	return rawCall{
		header:       []any{day.Microseconds(), window, "", "r", 0},
		rules:        []any{[]any{1, 0, 9, window, 0}, []any{1, 0, 5, window, 0}},
		scopes:       []any{[]any{1, 0, keep}, []any{2, 1, keep}, []any{2, 1, keep}, []any{2, 1, keep}},
		categories:   []string{"a", "reserved", "unused"},
		reservations: []any{[]any{3, 1}},
		origins:      []any{[]any{"a", 2}},
		ids:          []any{"a:e", "a:f"},
		deliveries:   []any{"d1", "d2"},
		numbers:      []any{1, 1},
		costs:        []any{1, 2},
	}
}

// row returns a row of a part.
func row(part []any, n int) []any { return part[n].([]any) }

// keeping sets how long all scopes keep their entries, and returns the call.
func (c rawCall) keeping(d time.Duration) rawCall {
	for n := range c.scopes {
		row(c.scopes, n)[2] = d.Microseconds()
	}
	return c
}

func (c rawCall) run(t *testing.T, s *store) ([]any, error) {
	t.Helper()
	keys := []string{
		"{n}:meta", "{n}:inflight", "{n}:sent", "{n}:categories", "{n}:global", "{n}:buckets:global",
	}
	for _, category := range c.categories {
		keys = append(keys, "{n}:category:"+category, "{n}:buckets:category:"+category)
	}
	for i := range keys {
		if c.otherKeys != nil {
			keys[i] = c.otherKeys.Replace(keys[i])
		}
	}
	arguments := slices.Clone(c.header)
	list := func(rows []any, counted bool) {
		if counted {
			arguments = append(arguments, len(rows))
		}
		for _, r := range rows {
			arguments = append(arguments, r.([]any)...)
		}
	}
	list(c.rules, true)
	list(c.scopes, false)
	list(c.reservations, true)
	list(c.origins, true)
	arguments = append(arguments, len(c.ids))
	arguments = slices.Concat(arguments, c.ids, c.deliveries, c.numbers, c.costs)
	return redis.NewScript(lua.Admit).Run(t.Context(), s.Client, keys, arguments...).Slice()
}

// ofLua matches Lua's own errors about a missing value, which the script should have checked.
var ofLua = regexp.MustCompile("unpack|nil value|index is nil")

// fails expects an error of the script's own checks, and an unchanged store.
func (c rawCall) fails(t *testing.T, s *store) {
	t.Helper()
	before := s.contents(t)
	reply, err := c.run(t, s)
	if err == nil || ofLua.MatchString(err.Error()) {
		t.Errorf("%v, %v; expected an error that says what is wrong", reply, err)
	}
	s.unchanged(t, before)
}

// One of the events is due to be decided again, so a call that did not stop in time would remove its slots.
func TestWrongArgumentIsAnError(t *testing.T) {
	cases := map[string]func(c *rawCall){
		"a dedupe window of 0":           func(c *rawCall) { c.header[0] = 0 },
		"a dedupe window without digits": func(c *rawCall) { c.header[0] = "" },
		"a longest window of 0":          func(c *rawCall) { c.header[1] = 0 },
		"no rule":                        func(c *rawCall) { c.rules = nil },
		"a rule without tiers":           func(c *rawCall) { c.rules[1] = []any{0, 0} },
		"a negative width":               func(c *rawCall) { row(c.rules, 1)[1] = -1 },
		"half a microsecond of width":    func(c *rawCall) { row(c.rules, 1)[1] = 0.5 },
		"a COUNT of 0":                   func(c *rawCall) { row(c.rules, 1)[2] = 0 },
		"a COUNT of 1.5":                 func(c *rawCall) { row(c.rules, 1)[2] = 1.5 },
		"a COUNT that is no number":      func(c *rawCall) { row(c.rules, 1)[2] = "many" },
		"a WINDOW of 0":                  func(c *rawCall) { row(c.rules, 1)[3] = 0 },
		"a width that divides no window": func(c *rawCall) { c.rules[1] = []any{1, 7, 5, 600_000_000, 1} },
		"a scope without a rule":         func(c *rawCall) { row(c.scopes, 1)[0] = 3 },
		"an unused scope without a rule": func(c *rawCall) { row(c.scopes, 3)[0] = 3 },
		"a category below nothing":       func(c *rawCall) { row(c.scopes, 1)[1] = 0 },
		"a category below itself":        func(c *rawCall) { row(c.scopes, 1)[1] = 2 },
		"a category below a later scope": func(c *rawCall) { row(c.scopes, 1)[1] = 3 },
		"an unused one below nothing":    func(c *rawCall) { row(c.scopes, 3)[1] = 0 },
		"entries that are kept for 0":    func(c *rawCall) { row(c.scopes, 1)[2] = 0 },
		"a scope twice":                  func(c *rawCall) { c.categories[2] = "a" },
		"a log twice": func(c *rawCall) {
			c.otherKeys = strings.NewReplacer("{n}:category:unused", "{n}:category:a")
		},
		"buckets twice": func(c *rawCall) {
			c.otherKeys = strings.NewReplacer("buckets:category:unused", "buckets:category:a")
		},
		"a log that is its buckets": func(c *rawCall) {
			c.otherKeys = strings.NewReplacer("buckets:category:unused", "category:unused")
		},
		"a window above the longest": func(c *rawCall) { c.header[1] = 30*time.Minute.Microseconds() - 1 },
		"a long window before a short one": func(c *rawCall) {
			c.rules[1] = []any{2, 0, 5, time.Hour.Microseconds(), 0, 5, 600_000_000, 0}
			c.header[1] = day.Microseconds()
		},
		"entries that are not kept for a window": func(c *rawCall) {
			row(c.scopes, 1)[2] = 30*time.Minute.Microseconds() - 1
		},
		"a dry run of 2":              func(c *rawCall) { c.header[4] = 2 },
		"a tier that is fixed by 2":   func(c *rawCall) { row(c.rules, 1)[4] = 2 },
		"a reservation of 0":          func(c *rawCall) { row(c.reservations, 0)[1] = 0 },
		"a reservation twice":         func(c *rawCall) { c.reservations = append(c.reservations, c.reservations[0]) },
		"a reservation of no scope":   func(c *rawCall) { row(c.reservations, 0)[0] = 5 },
		"an origin without a scope":   func(c *rawCall) { row(c.origins, 0)[1] = 5 },
		"an event without an origin":  func(c *rawCall) { c.numbers[1] = 2 },
		"the origin 0":                func(c *rawCall) { c.numbers[1] = 0 },
		"a cost of 0":                 func(c *rawCall) { c.costs[1] = 0 },
		"a cost of 1.5":               func(c *rawCall) { c.costs[1] = 1.5 },
		"a negative cost":             func(c *rawCall) { c.costs[1] = -1 },
		"an event without a cost":     func(c *rawCall) { c.costs = c.costs[:1] },
		"an event without a delivery": func(c *rawCall) { c.deliveries, c.costs = c.deliveries[:1], nil },
	}
	eachStore(t, func(t *testing.T, s *store) {
		first := newRawCall()
		first.ids, first.deliveries, first.numbers, first.costs = []any{"a:e"}, []any{"d1"}, []any{1}, nil
		_, err := first.keeping(time.Hour).run(t, s)
		kit.Check(t, err)
		s.advance(t, 31*time.Minute)
		for name, change := range cases {
			c := newRawCall()
			change(&c)
			t.Run(name, func(t *testing.T) { c.fails(t, s) })
		}
		reply, err := newRawCall().run(t, s)
		kit.Check(t, err)
		if verdicts := fmt.Sprint(reply[3]); verdicts != "[1 1]" {
			t.Errorf("the verdicts are %s, expected two admissions", verdicts)
		}
		inCategory(t, s, "a", 3)
	})
}

// A dry run of an event that is due to be decided again leaves its slots and its record alone.
func TestDryRunTakesNothingOut(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		_, err := newRawCall().keeping(time.Hour).run(t, s)
		kit.Check(t, err)
		s.advance(t, 31*time.Minute)
		inCategory(t, s, "a", 3)
		for _, count := range []int{5, 1} { // admitted, refused
			c := newRawCall()
			c.header[4] = 1
			row(c.rules, 1)[2] = count
			before := s.contents(t)
			_, err = c.run(t, s)
			kit.Check(t, err)
			s.unchanged(t, before)
		}
	})
}

// The store is empty, so the ids are not looked up. Only the script's own bound can fail the call.
func TestTooManyEventsAreAnError(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := newRawCall()
		row(c.rules, 0)[2], row(c.rules, 1)[2] = 1_000_000, 1_000_000
		c.ids, c.deliveries, c.numbers, c.costs = nil, nil, nil, nil
		for i := range 5001 {
			c.ids = append(c.ids, fmt.Sprint("a:e", i))
			c.deliveries = append(c.deliveries, "d")
			c.numbers = append(c.numbers, 1)
		}
		c.fails(t, s)
	})
}

func TestTooManyScopesAreAnError(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := newRawCall()
		for i := range 5000 - len(c.categories) {
			c.categories = append(c.categories, fmt.Sprint("c", i))
			c.scopes = append(c.scopes, row(c.scopes, 1))
		}
		c.fails(t, s)
	})
}
