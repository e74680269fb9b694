package ratelimit

// ForgetIndexed lets the next admission write its entries of the index again, for tests in which more time passes for the store
// than for the process.
func (l *Limiter) ForgetIndexed() {
	l.indexed.mu.Lock()
	defer l.indexed.mu.Unlock()
	clear(l.indexed.at)
}
