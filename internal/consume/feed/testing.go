package feed

// Hurry divides the pauses between attempts by ten, for all feeds of a test binary. The timeouts of requests
// stay, because a server may be slow on a busy machine.
func Hurry() {
	bindRetry /= 10
	deniedRetry /= 10
	allowancePeriod /= 10
}

// Bytes returns the bytes in flight, and their maximum together with the bytes that were requested; for tests.
func (s *Feed) Bytes() (now, peak int64) {
	s.inflight.mu.Lock()
	defer s.inflight.mu.Unlock()
	return s.inflight.bytes, s.inflight.peak
}
