package status

import (
	"cmp"
	"slices"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/internal/term"
)

// Scope is the global scope, a group's or a category's.
type Scope struct {
	Category string `json:"category,omitempty"` // empty: the global scope, or the group's
	// the scope that the categories of this group share; of a category the group whose limit it shares
	Group string `json:"group,omitempty"`
	Tiers []Tier `json:"tiers"`
	// when an event of one slot fits, as far as this scope goes; null: now
	NextFree *time.Time `json:"next_free"`
	// what would become of an event of it now, as far as all its limits go; null: it is not known
	Forecast *Forecast  `json:"forecast"`
	Sent     int64      `json:"sent_last_hour"`
	Dropped  int64      `json:"dropped_last_hour"`
	LastSent *time.Time `json:"last_sent"`
	// of the last hour, those in which something was sent or dropped, the oldest first; null: there is no room
	// for them
	Minutes []Minute `json:"minutes"`
}

// Tier is one tier of a limit.
type Tier struct {
	Limit string `json:"limit"` // 10/30m, 1000000/24h:15m, 200/24h:fixed
	Used  int    `json:"used"`
	Max   int    `json:"max"`
	// of a global tier: slots that are kept for some categories and not used by them
	Kept int `json:"kept,omitempty"`
	// until an event of one slot fits; 0: now, as far as the slots are not kept for others
	FreeS float64 `json:"free_in_s"`
	// AtLeast: it may take longer than that.
	AtLeast bool `json:"free_at_least,omitempty"`
}

// roomAt is when an event of one slot fits.
func (t Tier) roomAt(now time.Time) time.Time {
	return now.Add(time.Duration(t.FreeS * float64(time.Second)))
}

// Minute is what happened in a scope in one minute.
type Minute struct {
	Start   time.Time `json:"start"`
	Sent    int64     `json:"sent"`
	Dropped int64     `json:"dropped"`
}

// keptOnly reports whether no slot of the tier is left but those that are kept for some categories.
func (t Tier) keptOnly() bool { return t.Kept > 0 && t.Used < t.Max && t.Used+t.Kept >= t.Max }

// fullFor is for how long a full scope has no room.
func (s Scope) fullFor(now time.Time) string {
	atLeast := slices.ContainsFunc(s.Tiers, func(t Tier) bool { return t.FreeS > 0 && t.AtLeast })
	return spanText(s.NextFree.Sub(now), atLeast)
}

// spanText is how long something takes, for people.
func spanText(d time.Duration, atLeast bool) string {
	if atLeast {
		return "at least " + term.Duration(d)
	}
	return term.Duration(d)
}

// name is unique among the scopes of a list: its category, or its group.
func (s Scope) name() string { return cmp.Or(s.Category, s.Group) }

// level is the reason with which the scope refuses.
func (s Scope) level() string {
	switch {
	case s.Category != "":
		return outcome.Category
	case s.Group != "":
		return outcome.Group
	}
	return outcome.Global
}

// fullness is how much of its fullest tier a scope has used, from 0 to 1 and above after a limit was lowered.
func fullness(s Scope) float64 {
	fullest := 0.0
	for _, tier := range s.Tiers {
		fullest = max(fullest, float64(tier.Used)/float64(tier.Max))
	}
	return fullest
}

// scopes are the limits that were asked for, with what was counted in each.
type scopes struct {
	global             Scope
	groups, categories map[string]*Scope // by the names of outcome.CategoryName
	order              []*Scope          // of both, as they were asked for
}

// scopesOf puts usages and counts together. What was counted as stats.OtherCategory is a category without
// tiers; further categories show only in the global scope, and in their group's.
func scopesOf(f forecaster) scopes {
	s := scopes{groups: map[string]*Scope{}, categories: map[string]*Scope{}}
	s.global = newScope("", "")
	for _, usage := range f.usages {
		s.of(usage).add(f.bounded(usage), f.hour.Now)
	}
	s.forecast(f)
	for _, scope := range s.categories {
		if group := groupOf(scope.Category); s.groups[group] != nil {
			scope.Group = group
		}
	}
	for _, minute := range f.hour.Minutes {
		for _, count := range minute.Counts {
			s.global.count(minute.Start, count)
			if count.Category == stats.OtherCategory {
				s.category(count.Category).count(minute.Start, count)
				continue
			}
			for _, scope := range []*Scope{s.categories[count.Category], s.groups[groupOf(count.Category)]} {
				if scope != nil {
					scope.count(minute.Start, count)
				}
			}
		}
	}
	for category, last := range f.hour.LastSent {
		for _, scope := range []*Scope{&s.global, s.categories[category], s.groups[groupOf(category)]} {
			if scope != nil && (scope.LastSent == nil || last.After(*scope.LastSent)) {
				scope.LastSent = &last
			}
		}
	}
	return s
}

// forecast gives the scopes their forecasts.
func (s *scopes) forecast(f forecaster) {
	global := f.forecast(nil, f.globalFor(""))
	s.global.Forecast = &global
	for name, scope := range s.groups {
		ofGroup := f.ofGroup(outcome.CategoryOf(name))
		scope.Forecast = &ofGroup
	}
	for name, scope := range s.categories {
		own := f.ofCategory(outcome.CategoryOf(name))
		scope.Forecast = &own
	}
}

// groupOf is the name of the group of the category with this name.
func groupOf(category string) string {
	return outcome.CategoryName(ratelimit.GroupOf(outcome.CategoryOf(category)))
}

func newScope(group, category string) Scope {
	return Scope{Group: group, Category: category, Tiers: []Tier{}, Minutes: []Minute{}}
}

// of is the scope of a usage.
func (s *scopes) of(usage ratelimit.Usage) *Scope {
	switch {
	case usage.Category != "":
		return s.category(outcome.CategoryName(usage.Category))
	case usage.Group == "":
		return &s.global
	}
	name := outcome.CategoryName(usage.Group)
	if s.groups[name] == nil {
		scope := newScope(name, "")
		s.groups[name] = &scope
		s.order = append(s.order, &scope)
	}
	return s.groups[name]
}

// category is the scope of the category with this name.
func (s *scopes) category(name string) *Scope {
	if s.categories[name] == nil {
		scope := newScope("", name)
		s.categories[name] = &scope
		s.order = append(s.order, &scope)
	}
	return s.categories[name]
}

// lists are the groups and the categories.
func (s *scopes) lists() (groups, categories []Scope) {
	groups, categories = []Scope{}, []Scope{}
	for _, scope := range s.order {
		if scope.Category == "" {
			groups = append(groups, *scope)
		} else {
			categories = append(categories, *scope)
		}
	}
	return groups, categories
}

// add adds a tier.
func (s *Scope) add(usage ratelimit.Usage, now time.Time) {
	s.Tiers = append(s.Tiers, newTier(usage))
	if free := now.Add(usage.FreeIn); usage.FreeIn > 0 && (s.NextFree == nil || free.After(*s.NextFree)) {
		s.NextFree = &free
	}
}

func newTier(usage ratelimit.Usage) Tier {
	return Tier{
		Limit:   usage.Tier.String(),
		Used:    usage.Used,
		Max:     usage.Tier.Count,
		FreeS:   term.Seconds(usage.FreeIn),
		AtLeast: usage.AtLeast,
	}
}

// count adds what was sent or dropped. Dead events do not concern a limit, and replies are no events.
func (s *Scope) count(start time.Time, count stats.Count) {
	if count.Outcome != outcome.Sent && count.Outcome != outcome.Dropped || count.Reason == outcome.Reply {
		return
	}
	if n := len(s.Minutes); n == 0 || !s.Minutes[n-1].Start.Equal(start) {
		s.Minutes = append(s.Minutes, Minute{Start: start})
	}
	minute := &s.Minutes[len(s.Minutes)-1]
	if count.Outcome == outcome.Sent {
		s.Sent += count.N
		minute.Sent += count.N
	} else {
		s.Dropped += count.N
		minute.Dropped += count.N
	}
}
