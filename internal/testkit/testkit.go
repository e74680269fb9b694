// Package testkit holds what the tests of several packages need: waiting for a condition, ending a test on an error,
// clients and addresses that go with the test. Only tests import it.
//
// It knows nothing of notifier's own packages but how a Redis URL is opened.
package testkit

import (
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
)

// Patience is how long Eventually waits. No test waits so long to be right: it is for a machine that is busy with others.
const Patience = 20 * time.Second

// betweenLooks is the pause between two looks at a condition.
const betweenLooks = 5 * time.Millisecond

// Check ends the test when err is not nil.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Eventually waits until holds returns true, and ends the test with what was expected when it does not within Patience.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !Within(Patience, holds) {
		t.Fatalf("after %s still not: %s", Patience, what)
	}
}

// EventuallyNil waits until look returns nil, and ends the test with its last error when it does not within Patience.
func EventuallyNil(t testing.TB, look func() error) {
	t.Helper()
	var err error
	if !Within(Patience, func() bool { err = look(); return err == nil }) {
		t.Fatalf("after %s still: %v", Patience, err)
	}
}

// Within waits until holds returns true, and reports whether that was so before limit had passed. It looks at least once.
func Within(limit time.Duration, holds func() bool) bool {
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(betweenLooks) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// OpenRedis opens a URL as the product does. The client is closed with the test.
func OpenRedis(t testing.TB, url string) redis.UniversalClient {
	t.Helper()
	client, err := ratelimit.Open(url, nil)
	if err != nil {
		t.Fatalf("open %s: %v", url, err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// FreeAddr is a loopback address (host:port) at which nothing listens.
func FreeAddr(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Check(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
