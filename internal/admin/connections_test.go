package admin

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"notifier/internal/status"
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

// TestStrangersDoNotKeepProbesOut: each probe gets its response, however many connections others hold, and
// whatever they do with them.
func TestStrangersDoNotKeepProbesOut(t *testing.T) {
	const strangers = 400
	request := "GET /healthz HTTP/1.1\r\nHost: x\r\n"
	for _, test := range []struct {
		name    string
		sends   string
		repeats bool // for each response
	}{
		{"hold idle connections", "", false},
		{"send half a request", request, false},
		{"read no responses", strings.Repeat(request+"\r\n", 200), false},
		{"send no body", "GET /api/status HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", false},
		{"never stop probing", request + "\r\n", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			probes := fixture()
			probes.State = func(ctx context.Context) status.State {
				<-ctx.Done()
				return status.State{}
			}
			server := start(t, probes)
			var asking sync.WaitGroup
			defer asking.Wait()
			probed := make(chan struct{})
			defer close(probed)
			for range strangers {
				stranger, err := net.Dial("tcp", server.Addr())
				kit.Check(t, err)
				asking.Go(func() { bother(stranger, test.sends, test.repeats, probed) })
			}
			for range 20 {
				if code, body := fetch(server, "/healthz"); code != 200 {
					t.Fatalf("a probe gets %d %q", code, body)
				}
			}
		})
	}
}

// bother sends text, and again after each response if it repeats, until the server closes the connection or
// done is closed.
func bother(stranger net.Conn, text string, repeats bool, done <-chan struct{}) {
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-done:
		case <-stop:
		}
		_ = stranger.Close()
	}()
	_, _ = io.WriteString(stranger, text) // fails when the connection has given way
	if !repeats {
		<-done
		return
	}
	for buffer := make([]byte, 4096); ; {
		if _, err := stranger.Read(buffer); err != nil {
			return
		}
		_, _ = io.WriteString(stranger, text)
	}
}

// TestConnectionsAreLimited: one too many closes the oldest, and ends its request.
func TestConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}), make(chan struct{})
	probes := fixture()
	probes.Events = func(ctx context.Context, _ EventsQuery) (Events, error) {
		close(began)
		<-ctx.Done()
		close(ended)
		return Events{}, ctx.Err()
	}
	server := start(t, probes)
	open := make([]net.Conn, maxConnections+1)
	for i := range open {
		connection, err := net.Dial("tcp", server.Addr())
		kit.Check(t, err)
		open[i] = connection
		defer func() { _ = connection.Close() }()
		if i == 0 {
			const request = "GET /api/events?category=x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
			_, err := io.WriteString(connection, request)
			kit.Check(t, err)
			<-began
		}
	}
	select {
	case <-ended:
	case <-time.After(kit.Patience):
		t.Error("the request of a closed connection goes on")
	}
	_ = open[0].SetReadDeadline(time.Now().Add(kit.Patience))
	if n, err := open[0].Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest connection is open, %v", err)
	}
	_, err := io.WriteString(open[1], "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	kit.Check(t, err)
	if n, err := open[1].Read(make([]byte, 1)); n != 1 {
		t.Errorf("the second oldest connection is closed: %v", err)
	}
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
