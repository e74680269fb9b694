package ratelimit_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// TestAWaitForAConnectionIsNoOutage: calls that are more than the connections take turns, also for longer
// than one call may take.
func TestAWaitForAConnectionIsNoOutage(t *testing.T) {
	t.Parallel()
	proxy := redistest.StartProxy(t, redistest.StartProcess(t).Addr)
	proxy.Delay(200 * time.Millisecond)
	client, _, err := ratelimit.OpenGuarded("redis://"+proxy.Addr, nil, 1)
	kit.Check(t, err)
	t.Cleanup(func() { _ = client.Close() })
	var calls sync.WaitGroup
	for range 20 * client.(*redis.Client).Options().PoolSize {
		calls.Go(func() {
			if err := client.Ping(t.Context()).Err(); errors.Is(err, redis.ErrPoolTimeout) {
				t.Error(err)
			}
		})
	}
	calls.Wait()
}
