package streams

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// answers returns a request whose replies take so long, one after the other, and how often it was made.
func answers(times ...time.Duration) (request func(context.Context) (int, error), made *int) {
	made = new(int)
	return func(ctx context.Context) (int, error) {
		*made++
		select {
		case <-time.After(times[*made-1]):
			return *made, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}, made
}

func TestLookUpOfADistantServer(t *testing.T) {
	const never = time.Hour
	for name, test := range map[string]struct {
		replies []time.Duration
		want    int // the request that is answered
		took    time.Duration
	}{
		"near":                 {[]time.Duration{time.Millisecond}, 1, time.Millisecond},
		"a lost first request": {[]time.Duration{never, time.Millisecond}, 2, 1001 * time.Millisecond},
		"distant":              {[]time.Duration{4 * time.Second, 4 * time.Second}, 2, 5 * time.Second},
		"no reply":             {[]time.Duration{never, never}, 0, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				request, made := answers(test.replies...)
				begun := time.Now()
				got, err := LookUp(t.Context(), request)
				if got != test.want || time.Since(begun) != test.took || *made != len(test.replies) {
					t.Errorf("%d after %s and %d requests", got, time.Since(begun), *made)
				}
				if noReply := errors.Is(err, ErrNoReply); noReply != (test.want == 0) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

// A caller whose own time is over gets its own error: it may know why it has no time.
func TestLookUpEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		request, made := answers(time.Hour, time.Hour)
		_, err := LookUp(ctx, request)
		if errors.Is(err, ErrNoReply) || !errors.Is(err, context.DeadlineExceeded) || *made != 2 {
			t.Errorf("%v after %d requests", err, *made)
		}
	})
}
