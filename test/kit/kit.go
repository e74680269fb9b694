// Package kit holds helpers that the tests of several packages share: waiting for a condition, ending a test
// on an error, clients, addresses, limits, and bounding the parallel tests of a package. Only tests import
// it.
//
// Of notifier's own packages it imports only ratelimit, to open a Redis URL and to parse limits, and
// devstack/https. So the tests inside package ratelimit itself cannot import it; all others can.
package kit

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
)

// Patience bounds Eventually. It is no promise of the product: conditions hold within seconds, but a machine
// that runs other work beside the tests can be twenty times as slow.
const Patience = 3 * time.Minute

// Bounds of the pause between two checks of a condition. The pause doubles, so a fast condition is noticed at
// once, and the checks do not slow down one that takes seconds.
const (
	firstPause = time.Millisecond
	lastPause  = 20 * time.Millisecond
)

// Check ends the test when err is not nil.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Eventually waits until holds returns true. After Patience it fails the test with the expectation.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !Within(Patience, holds) {
		t.Fatalf("after %s still not: %s", Patience, what)
	}
}

// EventuallyNil waits until look returns nil, and ends the test with its last error when it does not within
// Patience.
func EventuallyNil(t testing.TB, look func() error) {
	t.Helper()
	var err error
	if !Within(Patience, func() bool { err = look(); return err == nil }) {
		t.Fatalf("after %s still: %v", Patience, err)
	}
}

// Within waits until holds returns true, and reports whether that was so before limit had passed. It looks at
// least once.
func Within(limit time.Duration, holds func() bool) bool {
	pause := firstPause
	for deadline := time.Now().Add(limit); !holds(); pause = min(2*pause, lastPause) {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// OpenRedis opens a URL as a worker does, without a guard. The client is closed with the test.
func OpenRedis(t testing.TB, url string) redis.UniversalClient {
	t.Helper()
	client, _, err := ratelimit.OpenGuarded(url, nil, 8)
	if err != nil {
		t.Fatalf("open %s: %v", url, err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// JetStream is a client of a NATS server's JetStream. Its connection is closed with the test.
func JetStream(t testing.TB, url string) jetstream.JetStream {
	t.Helper()
	connection, err := nats.Connect(url)
	Check(t, err)
	t.Cleanup(connection.Close)
	js, err := jetstream.New(connection)
	Check(t, err)
	return js
}

// QuietRedis discards go-redis's own log lines: they complain about servers that a test has stopped. It
// belongs into TestMain.
func QuietRedis() { redis.SetLogger(discard{}) }

type discard struct{}

func (discard) Printf(context.Context, string, ...any) {}

// Rules reads limits as a user writes them in LIMIT_GLOBAL, LIMIT_CATEGORY and LIMIT_OVERRIDES. It panics on
// an error, so that package-level variables can use it.
func Rules(global, category, overrides string) ratelimit.Rules {
	parse := func(text string) ratelimit.Limit {
		limit, err := ratelimit.ParseLimit(text)
		if err != nil {
			panic(err)
		}
		return limit
	}
	parsed, err := ratelimit.ParseOverrides(overrides)
	if err != nil {
		panic(err)
	}
	return ratelimit.Rules{Global: parse(global), Category: parse(category), Overrides: parsed}
}

// FreeAddr is a loopback address (host:port) at which nothing listens.
func FreeAddr(t testing.TB) string {
	t.Helper()
	port, err := FreePort()
	Check(t, err)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// Systems hand out ports from 32768 or higher to connections, and to listeners on port 0. A server that a
// test stops and starts again on such a port may find it taken. Only other tests use the ports below.
const (
	firstPort = 16 << 10
	ports     = 16 << 10
)

var nextPort = func() *atomic.Uint32 {
	var next atomic.Uint32
	next.Store(rand.Uint32N(ports)) // test binaries run at the same time
	return &next
}()

// FreePort is a port of the loopback address at which nothing listens, for those who can try another one. A
// test binary gets each of them once, as long as they last.
func FreePort() (int, error) {
	var err error
	for range ports {
		port := firstPort + int(nextPort.Add(1)%ports)
		var listener net.Listener
		if listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}

// Overlap lets n parallel tests of a package run at a time, however few processors there are, unless
// -parallel was given: for tests that wait for servers more than they work. It belongs into TestMain, before
// the tests run.
func Overlap(n int) {
	flag.Parse()
	given := func(argument string) bool { return strings.HasPrefix(argument, "-test.parallel") }
	if !slices.ContainsFunc(os.Args, given) {
		_ = flag.Set("test.parallel", strconv.Itoa(n))
	}
}
