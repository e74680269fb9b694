package ratelimit

// The figures in memory.go, for the test that measures them.
const (
	SlotBytes   = slotBytes
	FlightBytes = flightBytes
	BucketBytes = bucketBytes
)
