package ratelimit_test

import (
	"strings"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// TestStandingTimeIsReportedAndEnded plays a clock of Redis that was 20 hours ahead for a moment. The remedy that
// the error names frees the slots ahead, and the docs add the buckets.
func TestStandingTimeIsReportedAndEnded(t *testing.T) {
	for form, limits := range map[string]struct {
		limit   string
		buckets string // key that the remedy for buckets deletes as well
	}{
		"log":     {"2/30m", ""},
		"buckets": {"2/30m:30s", "{n}:buckets:category:a"},
	} {
		t.Run(form, func(t *testing.T) {
			eachLimiter(t, "100/30m", limits.limit, func(t *testing.T, s *store, limiter caller) {
				s.advance(t, 20*time.Hour)
				waiting := event("waiting", "a")
				limiter.admits(waiting, event("e", "a"))
				if err := limiter.StandsStill(); err != nil {
					t.Errorf("%v while the clock goes on", err)
				}
				s.advance(t, -20*time.Hour)
				limiter.want(ratelimit.Category, event("f", "a"))
				err := limiter.StandsStill()
				if err == nil || !strings.Contains(err.Error(), "the clock of Redis is 20h behind the newest admission") ||
					!strings.HasSuffix(err.Error(), "run HDEL {n}:meta clock") {
					t.Fatalf("%v, expected the remedy", err)
				}
				command := strings.Fields(err.Error()[strings.Index(err.Error(), "HDEL"):])
				kit.Check(t, s.HDel(t.Context(), command[1], command[2]).Err())
				if limits.buckets != "" {
					limiter.want(ratelimit.Category, event("f", "a"))
					kit.Check(t, s.Del(t.Context(), limits.buckets).Err())
				}
				limiter.admits(event("f", "a"))
				if err := limiter.StandsStill(); err != nil {
					t.Errorf("%v after the remedy", err)
				}
				limiter.posts(1, waiting, "", "p1")
				limiter.sent(waiting)
				if err := limiter.Ready(t.Context()); err != nil || limiter.StandsStill() != nil {
					t.Errorf("%v, %v after a post of an event that was admitted ahead", err, limiter.StandsStill())
				}
				limiter.admits(event("g", "b"))
				s.advance(t, 31*time.Minute)
				limiter.admits(event("h", "a"), event("i", "a"))
			})
		})
	}
}
