package consume

import "time"

// What a category may write of the letters that a publisher can cause without limit.
const (
	lettersAMinute  = 60
	letterWindow    = time.Minute
	quotaCategories = 1000 // those beyond share one window
)

// letterQuota limits the letters of each category in one replica: at most lettersAMinute in any minute, wherever it begins.
// A token bucket would let nearly twice as many through in the minute after a quiet one. It is not safe for concurrent use.
type letterQuota struct {
	categories map[string]*letterTimes
	others     letterTimes
	swept      time.Time
}

// letterTimes are the times of the latest letters, at most lettersAMinute: a ring once it is full.
type letterTimes struct {
	times  []time.Time
	oldest int
}

// take reports whether the category may write a letter at now, and counts it.
func (q *letterQuota) take(category string, now time.Time) bool {
	return q.of(category, now).take(now)
}

func (q *letterQuota) of(category string, now time.Time) *letterTimes {
	if known := q.categories[category]; known != nil {
		return known
	}
	if len(q.categories) >= quotaCategories {
		q.sweep(now)
	}
	if len(q.categories) >= quotaCategories {
		return &q.others
	}
	if q.categories == nil {
		q.categories = map[string]*letterTimes{}
	}
	times := &letterTimes{}
	q.categories[category] = times
	return times
}

// sweep forgets the categories that have written nothing for a window: nothing of them counts any more. It looks through
// them once a second at most, because a publisher may name a new category in each event.
func (q *letterQuota) sweep(now time.Time) {
	if now.Sub(q.swept) < time.Second {
		return
	}
	q.swept = now
	for category, times := range q.categories {
		if now.Sub(times.newest()) >= letterWindow {
			delete(q.categories, category)
		}
	}
}

func (t *letterTimes) take(now time.Time) bool {
	if len(t.times) < lettersAMinute {
		t.times = append(t.times, now)
		return true
	}
	if now.Sub(t.times[t.oldest]) < letterWindow {
		return false
	}
	t.times[t.oldest] = now
	t.oldest = (t.oldest + 1) % lettersAMinute
	return true
}

func (t *letterTimes) newest() time.Time {
	if len(t.times) == 0 {
		return time.Time{}
	}
	return t.times[(t.oldest+len(t.times)-1)%len(t.times)]
}
