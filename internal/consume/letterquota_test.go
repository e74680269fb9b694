package consume

import (
	"fmt"
	"testing"
	"time"
)

// In no minute does a category write more than its share, and as soon as the oldest letter is a minute old there is room.
func TestACategoryWritesItsShareInAnyMinute(t *testing.T) {
	began := time.Now()
	for name, every := range map[string]time.Duration{
		"all at once": 0, "many": 100 * time.Millisecond, "a few": 900 * time.Millisecond, "few enough": time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			var quota letterQuota
			var written []time.Time
			for i := range 700 {
				now := began.Add(time.Duration(i) * every)
				first := max(0, len(written)-lettersAMinute)
				room := len(written) < lettersAMinute || now.Sub(written[first]) >= time.Minute
				if took := quota.take("errors", now); took != room {
					t.Fatalf("event %d: a letter %t, expected %t: %d were written", i, took, room, len(written))
				}
				if room {
					written = append(written, now)
				}
			}
		})
	}
}

// A burst after a quiet minute, and the share of the next minute at its end: 119 letters within a minute were it a bucket.
func TestAShareIsNotRefilledBitByBit(t *testing.T) {
	var quota letterQuota
	now, n := time.Now(), 0
	for range 60 * 10 {
		if quota.take("errors", now) {
			n++
		}
		now = now.Add(100 * time.Millisecond)
	}
	if n != lettersAMinute {
		t.Errorf("%d letters within a minute, expected %d", n, lettersAMinute)
	}
}

func TestCategoriesDoNotShareUntilThereAreTooMany(t *testing.T) {
	var quota letterQuota
	now := time.Now()
	took := func(from, to int) (n int) {
		for i := from; i < to; i++ {
			for range lettersAMinute + 1 {
				if quota.take(fmt.Sprintf("c%d", i), now) {
					n++
				}
			}
		}
		return n
	}
	if n := took(0, quotaCategories); n != quotaCategories*lettersAMinute {
		t.Errorf("%d letters of the first categories, expected %d each", n, lettersAMinute)
	}
	if n := took(quotaCategories, quotaCategories+50); n != lettersAMinute {
		t.Errorf("%d letters of 50 further categories, expected %d together", n, lettersAMinute)
	}
	now = now.Add(letterWindow)
	if n := took(2*quotaCategories, 3*quotaCategories); n != quotaCategories*lettersAMinute {
		t.Errorf("%d letters of new categories a minute later, expected %d each: the first ones are forgotten", n, lettersAMinute)
	}
	if len(quota.categories) > quotaCategories {
		t.Errorf("%d categories are remembered, expected at most %d", len(quota.categories), quotaCategories)
	}
}
