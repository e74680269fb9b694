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

// Limiter reports how full the limits are; see package ratelimit.
type Limiter interface {
	Recent(ctx context.Context, most int) (categories []string, entries int, err error)
	Peek(ctx context.Context, categories ...string) ([]ratelimit.Usage, error)
	Slots(ctx context.Context, most int, categories ...string) ([]ratelimit.Slot, error)
	Pauses(ctx context.Context) ([]ratelimit.Pause, error)
}

// Stats reports what all replicas have done lately; see package stats.
type Stats interface {
	Hour(ctx context.Context) (stats.Hour, error)
	Replicas(ctx context.Context) ([]stats.Replica, error)
}

// Source reads a Status.
type Source struct {
	Limiter Limiter
	Stats   Stats
}

// Status is the state of all replicas together, as JSON for scripts, of 64 KiB at most. Categories have their names as
// outcome.CategoryName gives them.
type Status struct {
	Time       time.Time        `json:"time"` // by the clock of Redis
	Global     Scope            `json:"global"`
	Categories []Scope          `json:"categories"`      // the fullest first; of more than 100 those with the most drops, and the fullest of the busy ones
	More       int              `json:"more_categories"` // how many were left out; of more than 1000 at most so many
	Slots      []ratelimit.Slot `json:"slots"`           // of the longest global window, the newest first; at most 1000, and 100 where there is no room for more
	Holders    []Holder         `json:"holders"`         // of the newest 1000 slots, those with the most first; at most 10
	Others     int              `json:"more_holders"`    // how many were left out
	Outcomes   []Outcome        `json:"outcomes_last_hour"`
	CooldownS  float64          `json:"slack_cooldown_s"` // what is left of the longest pause that Slack asked for
	Pauses     []Pause          `json:"slack_pauses"`     // all that are in force
	Held       int              `json:"held"`             // events of all replicas that wait for something, each counted once
	Unposted   []Unposted       `json:"unposted"`         // by channel; of those for which admitted events wait
	Replicas   []stats.Replica  `json:"replicas"`
}

// Holder is how many slots a category holds.
type Holder struct {
	Category string `json:"category,omitempty"` // empty: no longer known
	Slots    int    `json:"slots"`
}

// Pause is one that Slack asked for.
type Pause struct {
	Channel string  `json:"channel,omitempty"` // empty: the whole workspace is paused
	LeftS   float64 `json:"left_s"`
	Text    string  `json:"text"` // for people: "#alerts: Slack asked to wait 12 s"
}

// Scope is the global scope, or a category's.
type Scope struct {
	Category string     `json:"category,omitempty"` // empty: the global scope
	Tiers    []Tier     `json:"tiers"`
	NextFree *time.Time `json:"next_free"` // when an event of one slot fits, as far as this scope goes; null: now
	Sent     int64      `json:"sent_last_hour"`
	Dropped  int64      `json:"dropped_last_hour"`
	LastSent *time.Time `json:"last_sent"`
	Minutes  []Minute   `json:"minutes"` // of the last hour, those in which something was sent or dropped, the oldest first; null: there is no room for them
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
	pauses, err := s.Limiter.Pauses(ctx)
	if err != nil {
		return Status{}, err
	}
	recent, entries, err := s.Limiter.Recent(ctx, mostEntries)
	if err != nil {
		return Status{}, err
	}
	sums := hour.Sum()
	all := candidates(recent, sums)
	lookedAt := all[:min(len(all), mostLookedAt)]
	usages, err := s.Limiter.Peek(ctx, lookedAt...)
	if err != nil {
		return Status{}, err
	}
	slots, err := s.Limiter.Slots(ctx, mostSlots, lookedAt...)
	if err != nil {
		return Status{}, err
	}
	for i := range slots {
		slots[i].Category = outcome.CategoryName(slots[i].Category)
	}
	status := Status{
		Time: hour.Now, Slots: slots, Replicas: replicas, Outcomes: outcomes(sums), Unposted: unpostedOf(replicas, hour.Now),
	}
	status.Holders, status.Others = holders(slots)
	status.Pauses = make([]Pause, len(pauses))
	for i, pause := range pauses {
		status.Pauses[i] = Pause{Channel: pause.Channel, LeftS: pause.Left.Seconds(), Text: pause.String()}
		status.CooldownS = max(status.CooldownS, pause.Left.Seconds())
	}
	for _, replica := range replicas {
		status.Held += replica.HeldEvents()
	}
	scopes := scopesOf(usages, hour)
	status.Global, status.Categories = scopes[0], choose(scopes[1:])
	// Of the entries that were not read, each can be a category.
	status.More = len(all) + max(0, entries-mostEntries) - len(status.Categories)
	if slices.ContainsFunc(status.Categories, func(scope Scope) bool { return scope.Category == stats.OtherCategory }) {
		status.More++
	}
	status.fit(mostBytes)
	return status, nil
}

// holders are the categories that hold the most slots, and how many further ones there are.
func holders(slots []ratelimit.Slot) (most []Holder, others int) {
	held := map[string]int{}
	for _, slot := range slots {
		held[slot.Category]++
	}
	all := make([]Holder, 0, len(held))
	for category, n := range held {
		all = append(all, Holder{Category: category, Slots: n})
	}
	slices.SortFunc(all, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(b.Slots, a.Slots), cmp.Compare(a.Category, b.Category))
	})
	most = all[:min(len(all), mostHolders)]
	return most, len(all) - len(most)
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
		s := scope(outcome.CategoryName(usage.Category))
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
