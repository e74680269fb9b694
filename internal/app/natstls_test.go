package app

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"notifier/internal/settings"
	"notifier/test/kit"
	"notifier/test/natstest"
)

// tlsServer starts a server with a certificate for 127.0.0.1. It expects TLS first, or greets before.
func tlsServer(t *testing.T, port int, cert, key string, first bool) *natsserver.Server {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	kit.Check(t, err)
	return natstest.Server(t, &natsserver.Options{
		Port: port, TLS: true, TLSTimeout: 2, TLSHandshakeFirst: first,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	})
}

func stopServer(s *natsserver.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

func portOf(s *natsserver.Server) int { return s.Addr().(*net.TCPAddr).Port }

// A worker connects to either kind of server, and reconnects when it has become the other kind.
func TestTLSFirst(t *testing.T) {
	t.Parallel()
	cert, key := kit.Certificate(t)
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprintf("first %t", first), func(t *testing.T) {
			t.Parallel()
			server := tlsServer(t, 0, cert, key, first)
			port := portOf(server)
			l := connected(t, func(env map[string]string) {
				env["NATS_URL"], env["NATS_TLS_CA"] = fmt.Sprintf("tls://127.0.0.1:%d", port), cert
			})
			kit.Eventually(t, "connected", l.IsConnected)
			for _, next := range []bool{!first, first} {
				stopServer(server)
				kit.Eventually(t, "disconnected", func() bool { return !l.IsConnected() })
				server = tlsServer(t, port, cert, key, next)
				kit.Eventually(t, "connected to the other kind", l.IsConnected)
			}
		})
	}
}

// Of a list, each server is of its own kind.
func TestTLSFirstOfSomeServers(t *testing.T) {
	t.Parallel()
	cert, key := kit.Certificate(t)
	servers := []*natsserver.Server{tlsServer(t, 0, cert, key, true), tlsServer(t, 0, cert, key, false)}
	l := connected(t, func(env map[string]string) {
		env["NATS_URL"] = fmt.Sprintf("tls://127.0.0.1:%d,tls://127.0.0.1:%d", portOf(servers[0]), portOf(servers[1]))
		env["NATS_TLS_CA"] = cert
	})
	kit.Eventually(t, "connected", l.IsConnected)
	for i, first := range []bool{true, false} {
		port := portOf(servers[i])
		stopServer(servers[i])
		kit.Eventually(t, "connected to the server that is left", func() bool {
			return l.IsConnected() && strings.HasSuffix(l.ConnectedAddr(), fmt.Sprint(":", portOf(servers[1-i])))
		})
		servers[i] = tlsServer(t, port, cert, key, first)
	}
}

// Without tls:// the reason has advice instead of a bare EOF.
func TestTLSFirstWithoutTLS(t *testing.T) {
	t.Parallel()
	cert, key := kit.Certificate(t)
	server := tlsServer(t, 0, cert, key, true)
	l := connected(t, func(env map[string]string) { env["NATS_URL"] = fmt.Sprintf("nats://127.0.0.1:%d", portOf(server)) })
	l.eventually(t, "if it expects TLS first (handshake_first), use tls:// in NATS_URL")
}

// A greeting may take longer than usual, on a slow line or from a busy server. Commands, which connect once,
// wait for it, too.
func TestALateGreetingIsWaitedFor(t *testing.T) {
	t.Parallel()
	cert, key := kit.Certificate(t)
	server := tlsServer(t, 0, cert, key, false)
	slow := slowly(t, server.Addr().String(), 700*time.Millisecond)
	l := connected(t, func(env map[string]string) { env["NATS_URL"], env["NATS_TLS_CA"] = "tls://"+slow, cert })
	kit.Eventually(t, "connected", l.IsConnected)
	once, err := l.settings.Connect(l.settings.URL, l.settings.OperatorOptions("test")...)
	kit.Check(t, err)
	once.Close()
}

// wss:// connects with NATS_TLS_CA, in capitals too.
func TestSecureWebSockets(t *testing.T) {
	t.Parallel()
	cert, key := kit.Certificate(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	kit.Check(t, err)
	port, err := kit.FreePort()
	kit.Check(t, err)
	natstest.Server(t, &natsserver.Options{
		Websocket: natsserver.WebsocketOpts{
			Host: "127.0.0.1", Port: port,
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		},
	})
	for _, scheme := range []string{"wss", "WSS"} {
		l := connected(t, func(env map[string]string) {
			env["NATS_URL"], env["NATS_TLS_CA"] = fmt.Sprintf("%s://127.0.0.1:%d", scheme, port), cert
		})
		kit.Eventually(t, scheme+" is connected", l.IsConnected)
	}
}

// A server that accepts connections and is silent is given up in time, however it is to be reached.
func TestSilentServerIsGivenUp(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts
	kit.Check(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	const patience = 2 * time.Second
	for _, scheme := range []string{"nats", "tls", "ws", "wss", "WSS"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			url, ended := scheme+"://"+listener.Addr().String(), make(chan error, 1)
			go func() {
				connection, err := settings.NATS{}.Connect(url, nats.Timeout(patience))
				if err == nil {
					connection.Close()
				}
				ended <- err
			}()
			select {
			case err := <-ended:
				if err == nil {
					t.Error("connected to a silent server")
				}
			case <-time.After(10 * patience):
				t.Errorf("not given up after %s", 10*patience)
			}
		})
	}
}

// slowly returns the address of a proxy that delays the server's first bytes.
func slowly(t *testing.T, address string, delay time.Duration) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Check(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	pass := func(from, to net.Conn) {
		_, _ = io.Copy(to, from) // either end may close
		_ = to.Close()
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", address)
			if err != nil {
				_ = client.Close()
				continue
			}
			go pass(client, server)
			time.AfterFunc(delay, func() { pass(server, client) })
		}
	}()
	return listener.Addr().String()
}

// A worker that starts before its servers waits for them, whatever kind they are.
func TestTLSFirstThatComesLater(t *testing.T) {
	t.Parallel()
	cert, key := kit.Certificate(t)
	port, err := kit.FreePort()
	kit.Check(t, err)
	l := connected(t, func(env map[string]string) {
		env["NATS_URL"], env["NATS_TLS_CA"] = fmt.Sprintf("tls://127.0.0.1:%d", port), cert
	})
	l.eventually(t, "connection refused")
	tlsServer(t, port, cert, key, true)
	kit.Eventually(t, "connected", l.IsConnected)
}
