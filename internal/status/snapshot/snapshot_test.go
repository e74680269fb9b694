package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"notifier/internal/status/snapshot"
)

// A result counts for as long as it is fresh, an error for a second.
func TestASnapshotIsReadAgainWhenItIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		s := snapshot.New(5*time.Second, time.Second, func(context.Context) (int, error) {
			if reads++; reads == 2 {
				return 0, errors.New("unavailable")
			}
			return reads, nil
		})
		for _, test := range []struct {
			wait time.Duration
			want string
		}{
			{0, "1 0s <nil>"},
			{4999 * time.Millisecond, "1 4.999s <nil>"},
			{time.Millisecond, "0 0s unavailable"},
			{999 * time.Millisecond, "0 999ms unavailable"},
			{time.Millisecond, "3 0s <nil>"},
		} {
			time.Sleep(test.wait) // of synctest's clock
			value, age, err := s.Get(t.Context())
			if got := fmt.Sprint(value, " ", age, " ", err); got != test.want {
				t.Errorf("%s later: %s, expected %s", test.wait, got, test.want)
			}
		}
	})
}

// Who comes during a read gets its result, also where the read takes longer than a result is fresh.
func TestCallersShareARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		s := snapshot.New(time.Second, time.Minute, func(context.Context) (int, error) {
			time.Sleep(3 * time.Second) // of synctest's clock
			reads++
			return reads, nil
		})
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				if value, age, err := s.Get(t.Context()); value != 1 || age != 3*time.Second || err != nil {
					t.Errorf("%d, %s old, %v; expected the one read, 3s old", value, age, err)
				}
			})
		}
		callers.Wait()
		if reads != 1 {
			t.Errorf("%d reads, expected 1", reads)
		}
	})
}

// A shared read that keeps nothing serves those who had asked when it began, and nobody who asks later.
func TestASharedReadBeginsAfterItIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, begun := 0, time.Now()
		s := snapshot.NewShared(10*time.Millisecond, time.Minute, func(context.Context) (string, error) {
			reads++
			read := fmt.Sprint(reads, " at ", time.Since(begun))
			time.Sleep(time.Second) // of synctest's clock
			return read, errors.New("an error is not kept either")
		})
		var callers sync.WaitGroup
		for i := range 50 {
			callers.Go(func() {
				time.Sleep(time.Duration(i)*100*time.Millisecond - 50*time.Millisecond) // of synctest's clock
				want := fmt.Sprintf("%d at %ds", (i+9)/10+1, (i+9)/10)
				if value, _, err := s.Get(t.Context()); value != want || err == nil {
					t.Errorf("caller %d: read %s, %v; expected %s", i, value, err, want)
				}
			})
		}
		callers.Wait()
	})
}

// However often it is asked for, a shared read begins no more often than its pause allows.
func TestASharedReadHasAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, begun := 0, time.Now()
		s := snapshot.NewShared(10*time.Millisecond, time.Minute, func(context.Context) (int, error) { reads++; return reads, nil })
		for i := range 100 {
			if value, _, err := s.Get(t.Context()); value != i+1 || err != nil {
				t.Fatalf("%d, %v, expected read %d", value, err, i+1)
			}
		}
		if took := time.Since(begun); took != 990*time.Millisecond {
			t.Errorf("100 reads took %s, expected 10ms between any two", took)
		}
	})
}

// A caller that has gone waits no longer, and what it began goes on for the others.
func TestACallerMayGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := snapshot.New(time.Second, time.Minute, func(ctx context.Context) (int, error) {
			time.Sleep(3 * time.Second) // of synctest's clock
			return 1, ctx.Err()
		})
		caller, leave := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		callers.Go(func() {
			if value, _, err := s.GetFor(caller, t.Context()); value != 1 || err != nil {
				t.Errorf("%d, %v, expected what it began to end well", value, err)
			}
		})
		synctest.Wait()
		callers.Go(func() {
			if value, _, err := s.Get(t.Context()); value != 1 || err != nil {
				t.Errorf("%d, %v, expected the result that another caller began", value, err)
			}
		})
		begun := time.Now()
		callers.Go(func() {
			if _, _, err := s.GetFor(caller, t.Context()); !errors.Is(err, context.Canceled) || time.Since(begun) > 0 {
				t.Errorf("%v after %s, expected it to return at once", err, time.Since(begun))
			}
		})
		synctest.Wait()
		leave()
		callers.Wait()
	})
}

// A read ends with its time limit, and with the context of the caller that began it.
func TestAReadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := snapshot.New(time.Second, 2*time.Second, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		if _, age, err := s.Get(t.Context()); age != 2*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %s %v, expected a timeout after 2s", age, err)
		}
		time.Sleep(time.Second) // of synctest's clock
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, age, err := s.Get(ctx); age != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("after %s %v, expected it to end with the caller's context", age, err)
		}
	})
}
