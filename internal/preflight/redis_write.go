package preflight

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// trial writes a key and deletes it again, in one call. Should that be cut short, the key expires. A server that is full, a replica,
// and one that waits for its disk or for its replicas refuse it as they would an admission.
const trial = `redis.call('SET', KEYS[1], 'check', 'PX', 10000) return redis.call('DEL', KEYS[1])`

// TryWrite returns the error with which Redis refuses to write to a namespace, or nil.
func TryWrite(ctx context.Context, client redis.UniversalClient, namespace string) error {
	return client.Eval(ctx, trial, []string{keyPrefix(namespace) + "check"}).Err()
}

// write finds out whether the server takes writes now. What a user may not do is among the permissions, and a replica was reported.
func (c *redisCheck) write(ctx context.Context) {
	err := withTimeout(ctx, func(ctx context.Context) error { return TryWrite(ctx, c.client, c.namespace) })
	switch {
	case err == nil, c.info["role"] == "slave", strings.Contains(err.Error(), "NOPERM"), strings.Contains(err.Error(), "can't run this command"):
	default:
		c.report.fail(redisAdvice(err), "it refuses writes: %v", err)
	}
}
