package cached_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"notifier/internal/cached"
)

// A result counts for as long as it is fresh, an error for a second.
func TestAValueIsReadAgainWhenItIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		s := cached.New(5*time.Second, time.Second, func(context.Context) (int, error) {
			if reads++; reads == 2 {
				return 0, errors.New("unavailable")
			}
			return reads, nil
		})
		for _, test := range []struct {
			wait time.Duration
			want string
		}{
			{0, "1 <nil>"},
			{4999 * time.Millisecond, "1 <nil>"},
			{time.Millisecond, "0 unavailable"},
			{999 * time.Millisecond, "0 unavailable"},
			{time.Millisecond, "3 <nil>"},
		} {
			time.Sleep(test.wait) // of synctest's clock
			value, err := s.Get(t.Context())
			if got := fmt.Sprint(value, " ", err); got != test.want {
				t.Errorf("%s later: %s, expected %s", test.wait, got, test.want)
			}
		}
	})
}

// Without a freshness only waiting callers share a result: an error that is over is not reported again.
func TestNothingIsKept(t *testing.T) {
	reads := 0
	s := cached.New(0, time.Second, func(context.Context) (int, error) {
		if reads++; reads == 1 {
			return 0, errors.New("unavailable")
		}
		return reads, nil
	})
	for _, want := range []string{"0 unavailable", "2 <nil>", "3 <nil>"} {
		value, err := s.Get(t.Context())
		if got := fmt.Sprint(value, " ", err); got != want {
			t.Errorf("%s, expected %s", got, want)
		}
	}
}

// A caller during a read gets its result, even if the read takes longer than a result is fresh.
func TestCallersShareARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		s := cached.New(time.Second, time.Minute, func(context.Context) (int, error) {
			time.Sleep(3 * time.Second) // of synctest's clock
			reads++
			return reads, nil
		})
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				if value, err := s.Get(t.Context()); value != 1 || err != nil {
					t.Errorf("%d, %v; expected the one read", value, err)
				}
			})
		}
		callers.Wait()
		if reads != 1 {
			t.Errorf("%d reads, expected 1", reads)
		}
	})
}

// A caller that leaves waits no longer, and the read that it began serves the others.
func TestACallerMayGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := cached.New(time.Second, time.Minute, func(ctx context.Context) (int, error) {
			time.Sleep(3 * time.Second) // of synctest's clock
			return 1, ctx.Err()
		})
		caller, leave := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		callers.Go(func() {
			if value, err := s.GetFor(caller, t.Context()); value != 1 || err != nil {
				t.Errorf("%d, %v, expected that the read it began ends well", value, err)
			}
		})
		synctest.Wait()
		callers.Go(func() {
			if value, err := s.Get(t.Context()); value != 1 || err != nil {
				t.Errorf("%d, %v, expected the result that another caller began", value, err)
			}
		})
		begun := time.Now()
		callers.Go(func() {
			if _, err := s.GetFor(caller, t.Context()); !errors.Is(err, context.Canceled) || time.Since(begun) > 0 {
				t.Errorf("%v after %s, expected it to return at once", err, time.Since(begun))
			}
		})
		synctest.Wait()
		leave()
		callers.Wait()
	})
}

// A read ends at its time limit, and when the context of the caller that began it ends.
func TestAReadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := cached.New(time.Second, 2*time.Second, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		begun := time.Now()
		_, err := s.Get(t.Context())
		if took := time.Since(begun); took != 2*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %s %v, expected a timeout after 2s", took, err)
		}
		time.Sleep(time.Second) // of synctest's clock
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begun = time.Now()
		_, err = s.Get(ctx)
		if took := time.Since(begun); took != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("after %s %v, expected it to end with the caller's context", took, err)
		}
	})
}
