package ratelimit_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/alicebob/miniredis/v2/server"

	"notifier/internal/ratelimit"
	"notifier/internal/testkit"
)

// fake is a server that speaks Redis's protocol and answers each command with the raw reply given for it, by its name
// or by its name and first argument, and every other command with an error.
func fake(t *testing.T, replies map[string]string) string {
	t.Helper()
	listening, err := server.NewServer("127.0.0.1:0")
	testkit.Check(t, err)
	t.Cleanup(listening.Close)
	listening.SetPreHook(func(peer *server.Peer, command string, arguments ...string) bool {
		reply, found := replies[command]
		if len(arguments) > 0 && !found {
			reply, found = replies[command+" "+arguments[0]]
		}
		if found {
			peer.WriteRaw(reply)
		}
		return found
	})
	return listening.Addr().String()
}

// fakeSentinel is a Sentinel that names a primary, knows no other Sentinel and never hears of a failover.
func fakeSentinel(t *testing.T, host, port string) string {
	t.Helper()
	return fake(t, map[string]string{
		"SENTINEL get-master-addr-by-name": fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port),
		"SENTINEL sentinels":               "*0\r\n",
		"SUBSCRIBE":                        "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n",
		"PING":                             "+PONG\r\n",
	})
}

// silent is a server that takes connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Check(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = connection.Close() })
		}
	}()
	return listener.Addr().String()
}

// limiterAt is a limiter under 100/30m and 10/30m over a URL.
func limiterAt(t *testing.T, url string) caller {
	t.Helper()
	limiter, err := ratelimit.New(testkit.OpenRedis(t, url), "n", testkit.Rules("100/30m", "10/30m", ""), day)
	testkit.Check(t, err)
	return caller{Limiter: limiter, t: t}
}
