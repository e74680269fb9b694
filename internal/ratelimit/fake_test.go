package ratelimit_test

import (
	"net"
	"testing"

	"github.com/alicebob/miniredis/v2/server"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// fake is a server that speaks Redis's protocol and answers each command with the raw reply given for it, by
// its name or by its name and first argument, and every other command with an error.
func fake(t *testing.T, replies map[string]string) string {
	t.Helper()
	listening, err := server.NewServer("127.0.0.1:0")
	kit.Check(t, err)
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

// silent is a server that takes connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Check(t, err)
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
	limiter, err := ratelimit.New(kit.OpenRedis(t, url), "n", kit.Rules("100/30m", "10/30m", ""), day)
	kit.Check(t, err)
	return caller{Limiter: limiter, t: t}
}
