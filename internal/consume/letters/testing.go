package letters

// Hurry divides the pauses between attempts by ten, for all workers of a test binary.
func Hurry() {
	ensureRetry /= 10
	returnDelay /= 10
}
