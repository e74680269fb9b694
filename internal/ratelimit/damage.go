package ratelimit

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/lua"
)

// LongestPause is the longest time that Slack may ask for: a longer one is cut to it. A pause in Redis that lasts longer was
// not written by a notifier, and counts for nothing. 1 hour.
const LongestPause = time.Hour

// DamagedKey is the error about a key of another type than the scripts store there. Something else has written it, so what
// it had counted is lost. It is never removed by notifier: it may be another program's.
type DamagedKey struct{ Key string }

func (d DamagedKey) Error() string {
	return fmt.Sprintf("the key %q is of another type than notifier stores there: remove it, or choose another REDIS_NAMESPACE", d.Key)
}

// explain adds to Redis's error about a key of another type which key that is: one of those that the call was given. Any
// other error it returns as it is.
func (l *Limiter) explain(ctx context.Context, err error, keyNames []string) error {
	if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		return err
	}
	types := make([]any, len(keyNames))
	for i, key := range keyNames {
		types[i] = l.keys.typeOf(key)
	}
	damaged, askErr := redis.NewScript(lua.Damaged).Run(ctx, l.redis, keyNames, types...).StringSlice()
	if askErr != nil || len(damaged) == 0 {
		return err
	}
	return fmt.Errorf("%w: %w", DamagedKey{Key: damaged[0]}, err)
}
