// Package embedded provides the in-process store that replaces Redis in cmd/notifier-dev, and in tests on a
// machine without a redis-server. It is miniredis with a single clock.
//
// The package does not know keys, scripts or limits.
package embedded

import "github.com/alicebob/miniredis/v2"

// NewStore returns an empty store that is not started yet. It has the methods of miniredis; SetTime sets its
// one clock.
//
// By default miniredis has two clocks: TIME and EXPIREAT follow the wall clock, while keys age only by
// FastForward. The scripts read expiries back (PEXPIRETIME) to keep an entry until no worker needs it. With
// two clocks each read would return a later expiry, and entries would never go. ClockTTL makes keys age by
// the clock of TIME. Only rounding remains: an expiry that is read back may be a millisecond early.
func NewStore() *miniredis.Miniredis {
	store := miniredis.NewMiniRedis()
	store.ClockTTL(true)
	return store
}
