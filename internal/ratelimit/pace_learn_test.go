package ratelimit_test

import (
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/testkit"
)

// A channel's name may have had a pause that is long over when its ID becomes known. The ID's own pause, and the probe after
// it, go on.
func TestAPauseThatIsLongOverEndsNoProbeOfTheID(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "10/30m", ""), day)
		answered := func(channel, name string, retry time.Duration, id string) {
			t.Helper()
			_, _, err := limiter.Answered(t.Context(), ratelimit.Answer{Channel: channel, Name: name, RetryAfter: retry, ID: id})
			testkit.Check(t, err)
		}
		begin := func(channel, name string) ratelimit.Permit {
			t.Helper()
			permit, err := limiter.Begin(t.Context(), ratelimit.Post{Channel: channel, Name: name, Longest: time.Minute})
			testkit.Check(t, err)
			return permit
		}
		answered("#a", "p1", time.Second, "")
		s.advance(t, 30*time.Second)
		answered("C0000000A", "p2", time.Minute, "")
		s.advance(t, 61*time.Second)
		begin("C0000000B", "p3") // the workspace's probe has to succeed first
		answered("C0000000B", "p3", 0, "")
		if got := begin("C0000000A", "p4"); got.Status != ratelimit.GrantedAsProbe {
			t.Fatalf("%+v, expected a probe", got)
		}
		answered("#a", "p5", 0, "C0000000A")
		if got := begin("C0000000A", "p6"); got.Status != ratelimit.ChannelPaused {
			t.Errorf("%+v, expected the channel to wait for its probe\n%s", got, s.contents(t))
		}
	})
}
