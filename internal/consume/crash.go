//go:build !crashpoints

package consume

// crash does nothing; see crash_points.go.
func crash(crashPoint) {}
