package ratelimit

import "time"

// ForgetIndexed lets the next admission write its entries of the index again, for tests in which more time passes for the store
// than for the process.
func (l *Limiter) ForgetIndexed() {
	l.indexed.mu.Lock()
	defer l.indexed.mu.Unlock()
	clear(l.indexed.at)
}

// IndexedAgo is as if the entries of some categories had been written a while ago.
func (l *Limiter) IndexedAgo(d time.Duration, categories ...string) {
	for _, category := range categories {
		l.indexed.written([]any{category}, time.Now().Add(-d))
	}
}

// HasIndexed lets no admission of a category write the index, for tests that count what is called or written.
func (l *Limiter) HasIndexed(categories ...string) { l.IndexedAgo(-time.Hour, categories...) }

// The figures in memory.go, for the test that measures them.
const (
	SlotBytes   = slotBytes
	FlightBytes = flightBytes
	BucketBytes = bucketBytes
)

// ArgumentsOf is how many arguments admit.lua is given for a batch.
func (l *Limiter) ArgumentsOf(batch []Request) int { return len(l.question(batch).arguments) }
