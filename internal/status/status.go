// Package status puts together what people ask about a running notifier: how full each limit is, who holds the slots,
// when there is room again, what was sent and dropped lately, and what replicas wait for. It reads only Redis, so that the
// status command, the page and every replica show the same, also about replicas that are gone.
//
// It knows what is asked and how it is shown as text (table.go). It does not know Redis keys, who asks, or how the page
// looks.
package status

import (
	"cmp"
	"context"
	"slices"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/stats"
)

// Bounds of what is shown.
const (
	mostCategories = 100
	mostSlots      = 1000
)

// Limiter reports how full the limits are; see package ratelimit.
type Limiter interface {
	Categories(ctx context.Context) ([]string, error)
	Peek(ctx context.Context, categories ...string) ([]ratelimit.Usage, error)
	Slots(ctx context.Context, most int, categories ...string) ([]ratelimit.Slot, error)
}

// Pause reports what is left of the pause that Slack asked for.
type Pause interface {
	Remaining(ctx context.Context) (time.Duration, error)
}

// Stats reports what all replicas have done lately; see package stats.
type Stats interface {
	Hour(ctx context.Context) (stats.Hour, error)
	Replicas(ctx context.Context) ([]stats.Replica, error)
}

// Source reads a Status.
type Source struct {
	Limiter Limiter
	Pause   Pause
	Stats   Stats
}

// Status is the state of all replicas together, as JSON for scripts.
type Status struct {
	Time       time.Time        `json:"time"` // by the clock of Redis
	Global     Scope            `json:"global"`
	Categories []Scope          `json:"categories"`      // the fullest first; of more than 100 those that come first in the alphabet
	More       int              `json:"more_categories"` // how many were left out
	Slots      []ratelimit.Slot `json:"slots"`           // of the longest global window, the newest first; at most 1000
	Outcomes   []Outcome        `json:"outcomes_last_hour"`
	CooldownS  float64          `json:"slack_cooldown_s"` // what is left of the pause that Slack asked for
	Held       int              `json:"held"`             // events held by all replicas that wait
	Replicas   []stats.Replica  `json:"replicas"`
}

// Scope is the global scope, or a category's.
type Scope struct {
	Category string     `json:"category,omitempty"` // empty: the global scope
	Tiers    []Tier     `json:"tiers"`
	NextFree *time.Time `json:"next_free"` // when an event of one slot fits, as far as this scope goes; null: now
	Sent     int64      `json:"sent_last_hour"`
	Dropped  int64      `json:"dropped_last_hour"`
	LastSent *time.Time `json:"last_sent"`
	Minutes  []Minute   `json:"minutes"` // of the last hour, those in which something was sent or dropped, the oldest first
}

// Tier is one tier of a limit.
type Tier struct {
	Limit string  `json:"limit"` // 10/30m
	Used  int     `json:"used"`
	Max   int     `json:"max"`
	FreeS float64 `json:"free_in_s"` // until an event of one slot fits; 0: now
}

// Minute is what happened in a scope in one minute.
type Minute struct {
	Start   time.Time `json:"start"`
	Sent    int64     `json:"sent"`
	Dropped int64     `json:"dropped"`
}

// Outcome is how many events ended in one way in the last hour.
type Outcome struct {
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
	N       int64  `json:"n"`
}

// Read asks Redis. An error means that it is unavailable, or has something that notifier never writes.
func (s Source) Read(ctx context.Context) (Status, error) {
	hour, err := s.Stats.Hour(ctx)
	if err != nil {
		return Status{}, err
	}
	replicas, err := s.Stats.Replicas(ctx)
	if err != nil {
		return Status{}, err
	}
	cooldown, err := s.Pause.Remaining(ctx)
	if err != nil {
		return Status{}, err
	}
	categories, err := s.Limiter.Categories(ctx)
	if err != nil {
		return Status{}, err
	}
	sums := hour.Sum()
	categories = union(categories, sums)
	all := len(categories)
	categories = categories[:min(all, mostCategories)]
	usages, err := s.Limiter.Peek(ctx, categories...)
	if err != nil {
		return Status{}, err
	}
	slots, err := s.Limiter.Slots(ctx, mostSlots, categories...)
	if err != nil {
		return Status{}, err
	}
	status := Status{
		Time: hour.Now, Slots: slots, CooldownS: cooldown.Seconds(), Replicas: replicas, More: all - len(categories), Outcomes: outcomes(sums),
	}
	for _, replica := range replicas {
		if len(replica.Waits) > 0 {
			status.Held += replica.Held
		}
	}
	scopes := scopesOf(usages, hour)
	status.Global, status.Categories = scopes[0], scopes[1:]
	slices.SortStableFunc(status.Categories, func(a, b Scope) int {
		return cmp.Or(cmp.Compare(fullness(b), fullness(a)), cmp.Compare(b.Dropped, a.Dropped), cmp.Compare(a.Category, b.Category))
	})
	return status, nil
}

// union is the categories that hold slots, followed by those with counts in the last hour.
func union(holding []string, sums []stats.Count) []string {
	categories := slices.Clone(holding)
	for _, count := range sums {
		if count.Category != stats.OtherCategory && !slices.Contains(categories, count.Category) {
			categories = append(categories, count.Category)
		}
	}
	return categories
}

// fullness is how much of its fullest tier a scope has used, from 0 to 1 and above after a limit was lowered.
func fullness(s Scope) float64 {
	fullest := 0.0
	for _, tier := range s.Tiers {
		fullest = max(fullest, float64(tier.Used)/float64(tier.Max))
	}
	return fullest
}

// scopesOf puts usages and counts together, the global scope first. What was counted as stats.Other has no tiers; categories
// past the first ones show only in the global scope.
func scopesOf(usages []ratelimit.Usage, hour stats.Hour) []Scope {
	var scopes []Scope
	at := map[string]int{}
	scope := func(category string) *Scope {
		i, known := at[category]
		if !known {
			i = len(scopes)
			at[category] = i
			scopes = append(scopes, Scope{Category: category, Tiers: []Tier{}, Minutes: []Minute{}})
		}
		return &scopes[i]
	}
	for _, usage := range usages {
		s := scope(usage.Category)
		s.Tiers = append(s.Tiers, Tier{Limit: usage.Tier.String(), Used: usage.Used, Max: usage.Tier.Count, FreeS: usage.FreeIn.Seconds()})
		if free := hour.Now.Add(usage.FreeIn); usage.FreeIn > 0 && (s.NextFree == nil || free.After(*s.NextFree)) {
			s.NextFree = &free
		}
	}
	for _, minute := range hour.Minutes {
		for _, count := range minute.Counts {
			if _, asked := at[count.Category]; asked || count.Category == stats.OtherCategory {
				scope(count.Category).count(minute.Start, count)
			}
			scope("").count(minute.Start, count)
		}
	}
	for category, last := range hour.LastSent {
		if i, known := at[category]; known {
			scopes[i].LastSent = &last
		}
		if global := scope(""); global.LastSent == nil || last.After(*global.LastSent) {
			global.LastSent = &last
		}
	}
	return scopes
}

// count adds what was sent or dropped; dead events do not concern a limit.
func (s *Scope) count(start time.Time, count stats.Count) {
	if count.Outcome != outcome.Sent && count.Outcome != outcome.Dropped {
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

// outcomes adds up over the categories, in the order of outcome and reason.
func outcomes(counts []stats.Count) []Outcome {
	sums := map[Outcome]int64{}
	for _, count := range counts {
		sums[Outcome{Outcome: count.Outcome, Reason: count.Reason}] += count.N
	}
	list := []Outcome{}
	for outcome, n := range sums {
		outcome.N = n
		list = append(list, outcome)
	}
	slices.SortFunc(list, func(a, b Outcome) int {
		return cmp.Or(-cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Reason, b.Reason)) // sent, dropped, dead
	})
	return list
}
