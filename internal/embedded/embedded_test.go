package embedded_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/embedded"
)

// The scripts read an expiry back and write it again (keep in lua/admit.lua): it must not move with the time of asking.
func TestAnExpiryReadBackStaysWhereItWasSet(t *testing.T) {
	store := embedded.NewStore()
	if err := store.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	client := redis.NewClient(&redis.Options{Addr: store.Addr()})
	t.Cleanup(func() { _ = client.Close() })

	ends := time.Now().Add(time.Hour).UnixMilli()
	for range 5 {
		script := `redis.call('SET', 'key', '1') redis.call('PEXPIREAT', 'key', ARGV[1]) return 1`
		if err := client.Eval(t.Context(), script, nil, ends).Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond) // the clock has to move for the drift to show
		got, err := client.Do(t.Context(), "PEXPIRETIME", "key").Int64()
		if err != nil {
			t.Fatal(err)
		}
		if got < ends-1 || got > ends {
			t.Fatalf("the key expires %d ms after the time that was set, expected 0 or -1", got-ends)
		}
	}
}

func TestAKeyIsGoneWhenTheClockHasPassedItsExpiry(t *testing.T) {
	store := embedded.NewStore()
	t.Cleanup(store.Close)
	now := time.Date(2026, 11, 20, 4, 39, 1, 0, time.UTC)
	store.SetTime(now)
	if err := store.Start(); err != nil {
		t.Fatal(err)
	}
	if err := store.Set("key", "value"); err != nil {
		t.Fatal(err)
	}
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
