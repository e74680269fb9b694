package wait

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !For(t.Context(), time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("it took %s, expected a minute", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if For(ctx, time.Minute) || time.Since(began) != time.Second {
			t.Errorf("it took %s, expected that the end of the context ends it after a second", time.Since(began))
		}
	})
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		hour := func() bool { return time.Since(began) >= time.Hour }
		if !Until(t.Context(), time.Minute, hour) || time.Since(began) != time.Hour {
			t.Errorf("it took %s, expected an hour", time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if !Until(ctx, time.Minute, hour) || Until(ctx, time.Minute, func() bool { return false }) {
			t.Error("a context that is done ends the wait, and changes nothing where there is none")
		}
	})
}

func TestJitter(t *testing.T) {
	for range 1000 {
		if d := Jitter(time.Second); d < 500*time.Millisecond || d >= 1500*time.Millisecond {
			t.Fatalf("%s, expected half a second to one and a half", d)
		}
	}
}
