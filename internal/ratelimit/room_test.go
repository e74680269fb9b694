package ratelimit_test

import (
	"slices"
	"testing"
	"time"

	"notifier/internal/ratelimit"
)

// What Rooms says of a category is what the next decision about it says: which tier has no room, what is
// kept, and until when.
func TestRoomsAgreeWithDecisions(t *testing.T) {
	for _, test := range []struct {
		name, global string
		reserve      map[string]int
		before       map[string]int // events of each category
	}{
		{"empty", "10/30m", map[string]int{"payments": 3}, nil},
		{"no reserve", "10/30m", nil, map[string]int{"noise": 10}},
		{"kept", "10/30m", map[string]int{"payments": 3}, map[string]int{"noise": 7}},
		{"used by those it is kept for", "10/30m", map[string]int{"payments": 3}, map[string]int{"payments": 3, "noise": 7}},
		{"two reserves", "10/30m", map[string]int{"payments": 3, "alerts": 2}, map[string]int{"payments": 1, "noise": 5}},
		{"two tiers", "20/1h+8/1m", map[string]int{"payments": 3}, map[string]int{"noise": 5}},
		{"in buckets", "10/30m:1m", map[string]int{"payments": 3}, map[string]int{"noise": 7}},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				limiter := s.limiter(t, reserving(test.global, "20/30m", test.reserve), day)
				for category, n := range test.before {
					limiter.admits(events(n, category, category)...)
				}
				categories := []string{"noise", "payments", "other", "alerts", "payments"}
				rooms, err := limiter.Rooms(t.Context(), categories...)
				if err != nil || len(rooms) != len(categories) {
					t.Fatalf("%v, %v", rooms, err)
				}
				for i, category := range categories {
					refused := slices.IndexFunc(rooms[i].Usages, func(u ratelimit.Usage) bool { return u.FreeIn > 0 })
					got := limiter.one(event("next "+category, category))
					if got.Verdict == ratelimit.Admitted {
						if refused >= 0 {
							t.Errorf("%s is admitted, although there is no room in %+v", category, rooms[i])
						}
						if !limiter.refund(event("next "+category, category)) { // it was only to be seen
							t.Fatal("its slot is not refunded")
						}
						continue
					}
					if refused < 0 {
						t.Fatalf("%s is refused with %+v, although there is room in %+v", category, got, rooms[i])
					}
					usage := rooms[i].Usages[refused]
					if late := usage.FreeIn - got.RetryAfter; rooms[i].Kept[refused] != got.Reserved || usage.Used != got.Used || late < 0 || late > time.Minute {
						t.Errorf("%s: %+v with %d kept, the decision is %+v", category, usage, rooms[i].Kept[refused], got)
					}
				}
			})
		})
	}
}
