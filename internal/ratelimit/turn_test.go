package ratelimit_test

import (
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

func TestTurnIsWhatThePaceAnswers(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		l := s.paced(t, "2/10s")
		pace := ratelimit.Tier{Count: 2, Window: 10 * time.Second}
		turn := func() time.Duration {
			t.Helper()
			in, err := l.Turn(t.Context(), "#alerts", pace)
			kit.Check(t, err)
			return in
		}
		for _, name := range []string{"p1", "p2"} {
			if in := turn(); in != 0 {
				t.Errorf("before %s its turn is in %s, expected now", name, in)
			}
			permit, err := l.Begin(t.Context(), ratelimit.Post{Channel: "#alerts", Name: name, Longest: time.Second})
			if err != nil || permit.Status != ratelimit.Granted {
				t.Fatal(permit, err)
			}
		}
		permit, err := l.Begin(t.Context(), ratelimit.Post{Channel: "#alerts", Name: "p3", Longest: time.Second})
		kit.Check(t, err)
		if in := turn(); permit.Status != ratelimit.Paced || in > permit.Wait || in < permit.Wait-time.Second {
			t.Errorf("its turn is in %s, but begin.lua says %+v", in, permit)
		}
		if in, err := l.Turn(t.Context(), "#other", pace); in != 0 || err != nil {
			t.Errorf("of another channel: %s, %v", in, err)
		}
	})
}
