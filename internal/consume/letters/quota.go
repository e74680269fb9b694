package letters

import (
	"time"

	"golang.org/x/time/rate"
)

// What a category may write of the letters that a publisher can cause without limit.
const (
	lettersAMinute  = 60
	quotaCategories = 1000 // those beyond share one quota
)

// quotas limit the letters of each category in one replica. They are not safe for concurrent use.
type quotas struct {
	categories map[string]*rate.Limiter
	others     *rate.Limiter
	swept      time.Time
}

func newQuota() *rate.Limiter {
	return rate.NewLimiter(rate.Every(time.Minute/lettersAMinute), lettersAMinute)
}

func newQuotas() *quotas { return &quotas{categories: map[string]*rate.Limiter{}, others: newQuota()} }

// take reports whether the category may write a letter at now, and counts it.
func (q *quotas) take(category string, now time.Time) bool {
	known := q.categories[category]
	if known == nil {
		if len(q.categories) >= quotaCategories {
			q.sweep(now)
		}
		if len(q.categories) >= quotaCategories {
			return q.others.AllowN(now, 1)
		}
		known = newQuota()
		q.categories[category] = known
	}
	return known.AllowN(now, 1)
}

// sweep forgets the categories that have their whole quota again. It looks through them once a second at
// most, because a publisher may name a new category in each event.
func (q *quotas) sweep(now time.Time) {
	if now.Sub(q.swept) < time.Second {
		return
	}
	q.swept = now
	for category, quota := range q.categories {
		if quota.TokensAt(now) >= lettersAMinute {
			delete(q.categories, category)
		}
	}
}
