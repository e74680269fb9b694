package ratelimit

import (
	"context"
	"maps"
	"slices"
)

// Reserve is how many slots of the global limit are kept for a category, in its longest tier with reserves.
type Reserve struct {
	Category string `json:"category"`
	Slots    int    `json:"slots"` // as the settings have it
	Used     int    `json:"used"`  // of the category in that tier's window; it can be more
	Kept     int    `json:"kept"`  // what the others cannot have now: Slots less Used, 0 or more
}

// Reserves returns what is kept for whom, in alphabetical order of the categories; none where nothing is reserved. Errors are as
// for Admit.
func (l *Limiter) Reserves(context.Context) ([]Reserve, error) {
	var reserves []Reserve
	for _, category := range slices.Sorted(maps.Keys(l.rules.Reserve)) {
		slots := l.rules.Reserve[category]
		reserves = append(reserves, Reserve{Category: category, Slots: slots, Kept: slots})
	}
	return reserves, nil
}
