package feed

// Hurry makes the pauses between attempts a tenth of what they are, for all feeds of a test binary. What
// bounds an answer of the server stays: it may take as long on a busy machine.
func Hurry() {
	bindRetry /= 10
	allowancePeriod /= 10
}

// Bytes are those in flight, and the most that they have been together with those that were requested; for
// tests.
func (s *Feed) Bytes() (now, peak int64) {
	s.inflight.mu.Lock()
	defer s.inflight.mu.Unlock()
	return s.inflight.bytes, s.inflight.peak
}
