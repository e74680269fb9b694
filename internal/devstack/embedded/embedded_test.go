package embedded_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/devstack/embedded"
	"notifier/test/kit"
)

// admit.lua reads an expiry and writes it again (keep). It must not drift.
func TestAnExpiryReadBackStaysWhereItWasSet(t *testing.T) {
	store := embedded.NewStore()
	now := time.Date(2026, 11, 20, 4, 39, 1, 0, time.UTC)
	store.SetTime(now)
	kit.Check(t, store.Start())
	t.Cleanup(store.Close)
	client := redis.NewClient(&redis.Options{Addr: store.Addr()})
	t.Cleanup(func() { _ = client.Close() })

	ends := now.Add(time.Hour).UnixMilli()
	kit.Check(t, client.Set(t.Context(), "key", "1", 0).Err())
	kit.Check(t, client.Do(t.Context(), "PEXPIREAT", "key", ends).Err())
	for range 5 {
		now = now.Add(10 * time.Millisecond)
		store.SetTime(now)
		got, err := client.Do(t.Context(), "PEXPIRETIME", "key").Int64()
		kit.Check(t, err)
		if got != ends {
			t.Fatalf("the key expires %d ms after the time that was set", got-ends)
		}
	}
}

// Without SetTime, as "notifier-dev dev" runs it.
func TestKeysExpireInRealTime(t *testing.T) {
	store := embedded.NewStore()
	kit.Check(t, store.Start())
	t.Cleanup(store.Close)
	kit.Check(t, store.Set("key", "value"))
	store.SetTTL("key", 20*time.Millisecond)
	kit.Eventually(t, "the key is gone", func() bool { return !store.Exists("key") })
}

func TestAKeyIsGoneWhenTheClockHasPassedItsExpiry(t *testing.T) {
	store := embedded.NewStore()
	t.Cleanup(store.Close)
	now := time.Date(2026, 11, 20, 4, 39, 1, 0, time.UTC)
	store.SetTime(now)
	kit.Check(t, store.Start())
	kit.Check(t, store.Set("key", "value"))
	store.SetTTL("key", time.Minute)
	store.SetTime(now.Add(time.Minute - time.Millisecond))
	if !store.Exists("key") {
		t.Error("the key is gone a millisecond before its time")
	}
	store.SetTime(now.Add(time.Minute))
	if store.Exists("key") {
		t.Error("the key outlives its time")
	}
}
