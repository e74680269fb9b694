package letters

import (
	"maps"
	"time"

	"golang.org/x/time/rate"
)

const (
	lettersPerMinute = 60
	// maxQuotas bounds the categories with a quota of their own. A hostile publisher invents one per event.
	maxQuotas = 1000
)

// quotas limit the letters of each category in one worker. They are not safe for concurrent use.
type quotas struct {
	categories map[string]*rate.Limiter
	others     *rate.Limiter // shared by the categories beyond maxQuotas
}

func newQuota() *rate.Limiter {
	return rate.NewLimiter(rate.Every(time.Minute/lettersPerMinute), lettersPerMinute)
}

func newQuotas() *quotas {
	return &quotas{categories: map[string]*rate.Limiter{}, others: newQuota()}
}

// take counts a letter of the category and reports whether it may be written.
func (q *quotas) take(category string, now time.Time) bool {
	quota := q.categories[category]
	if quota == nil && len(q.categories) < maxQuotas {
		quota = newQuota()
		q.categories[category] = quota
	}
	if quota != nil {
		return quota.AllowN(now, 1)
	}
	if !q.others.AllowN(now, 1) {
		return false
	}
	// The shared quota also bounds how often the full map is searched for idle categories.
	maps.DeleteFunc(q.categories, func(_ string, quota *rate.Limiter) bool {
		return quota.TokensAt(now) >= lettersPerMinute
	})
	return true
}
