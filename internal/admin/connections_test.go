package admin

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"notifier/test/kit"
)

// pipes is a listener of connections in memory, which take part in synctest's clock.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case connection := <-p.accepted:
		return connection, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080} }

// watched reports when the server closes a connection.
type watched struct {
	net.Conn
	once  sync.Once
	ended chan time.Time
}

func (w *watched) Close() error {
	w.once.Do(func() { w.ended <- time.Now() })
	return w.Conn.Close()
}

func TestSlowClientsAreDisconnected(t *testing.T) {
	t.Parallel()
	request := "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
	for _, test := range []struct {
		name  string
		parts []string // sent one second apart
		reads bool     // the client reads the response
		want  time.Duration
	}{
		{"sends nothing", nil, true, readHeaderTimeout},
		{"endless header", append([]string{request}, strings.Split(strings.Repeat("X: y\r\n", 60), "\n")...), true, readHeaderTimeout},
		{"endless body", append([]string{request + "Content-Length: 100\r\n\r\n"}, strings.Split(strings.Repeat("x", 60), "")...), true, readTimeout},
		{"idle", []string{request + "\r\n"}, true, idleTimeout},
		{"reads nothing", []string{request + "\r\n"}, false, writeTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := newServer(t.Context(), Config{}, fixture())
			listener := pipes{make(chan net.Conn), make(chan struct{})}
			go func() { _ = server.Serve(listener) }()
			ours, theirs := net.Pipe()
			began, ended := time.Now(), make(chan time.Time, 1)
			listener.accepted <- &watched{Conn: theirs, ended: ended}
			if test.reads {
				go func() { _, _ = io.Copy(io.Discard, ours) }()
			}
			for _, part := range test.parts {
				if _, err := io.WriteString(ours, part); err != nil {
					break
				}
				time.Sleep(time.Second) // of synctest's clock
			}
			if took := (<-ended).Sub(began).Truncate(time.Second); took != test.want {
				t.Errorf("%s: disconnected after %s, expected %s", test.name, took, test.want)
			}
			_ = ours.Close()
			kit.Check(t, server.Close())
		})
	}
}

func TestConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	server := start(t, fixture())
	open := make([]net.Conn, maxConnections)
	for i := range open {
		connection, err := net.Dial("tcp", server.Addr())
		kit.Check(t, err)
		open[i] = connection
		defer func() { _ = connection.Close() }()
	}
	if code, body := fetch(server, "/healthz"); code != 0 {
		t.Errorf("one connection too many: %d %q, expected it to be closed", code, body)
	}
	kit.Check(t, open[0].Close())
	kit.Eventually(t, "its place is free", func() bool {
		code, _ := fetch(server, "/healthz")
		return code == 200
	})
}

func TestHeadersAreLimited(t *testing.T) {
	t.Parallel()
	server := start(t, fixture())
	for size, want := range map[int]string{30_000: "200", 40_000: "431"} {
		status := rawStatus(t, server, "GET /healthz HTTP/1.1\r\nHost: x\r\nCookie: "+strings.Repeat("x", size))
		if status != want {
			t.Errorf("header of %d bytes: %s, expected %s", size, status, want)
		}
	}
}

// rawStatus sends a request as written and returns the status of the response.
func rawStatus(t *testing.T, server *Server, request string) string {
	t.Helper()
	connection, err := net.Dial("tcp", server.Addr())
	kit.Check(t, err)
	defer func() { _ = connection.Close() }()
	_, _ = io.WriteString(connection, request+"\r\nConnection: close\r\n\r\n") // the server may refuse the end
	reply := make([]byte, len("HTTP/1.1 200"))
	_, err = io.ReadFull(connection, reply)
	kit.Check(t, err)
	return string(reply[len(reply)-3:])
}
