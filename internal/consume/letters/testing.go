package letters

// Hurry makes the pauses between attempts a tenth of what they are, for all workers of a test binary.
func Hurry() {
	ensureRetry /= 10
	laterFor /= 10
}
