package ratelimit

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// DamagedKey is the error about a key of another type than the scripts store there. Something else has
// written it, so what it had counted is lost. It is never removed by notifier: it may be another program's.
type DamagedKey struct{ Key string }

func (d DamagedKey) Error() string {
	return fmt.Sprintf(
		"the key %q is of another type than notifier stores there: remove it, or choose another REDIS_NAMESPACE",
		d.Key)
}

// explain adds to Redis's error about a key of another type which key that is: one of those that the call was
// given. Any other error it returns as it is. It asks for lengths, because the users of v0.1.0 may not ask
// for types.
func (l *Limiter) explain(ctx context.Context, err error, keyNames []string) error {
	if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		return err
	}
	pipe := l.redis.Pipeline()
	lengths := make([]*redis.IntCmd, len(keyNames))
	for i, key := range keyNames {
		if l.keys.isHash(key) {
			lengths[i] = pipe.HLen(ctx, key)
		} else {
			lengths[i] = pipe.ZCard(ctx, key)
		}
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, length := range lengths {
		if length.Err() != nil && strings.Contains(length.Err().Error(), "WRONGTYPE") {
			return fmt.Errorf("%w: %w", DamagedKey{Key: keyNames[i]}, err)
		}
	}
	return err
}
