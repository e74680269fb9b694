package admin_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"notifier/internal/admin"
	"notifier/test/kit"
)

// pipes is a listener whose connections are in memory, so that they take part in a test's clock.
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
	ended chan time.Time // has room for one
}

func (w *watched) Close() error {
	w.once.Do(func() { w.ended <- time.Now() })
	return w.Conn.Close()
}

// Nobody keeps a connection by being slow.
func TestSlowClientsAreDisconnected(t *testing.T) {
	request := "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
	for _, test := range []struct {
		name  string
		parts []string // sent with a second in between
		want  time.Duration
		reads bool // the answers
	}{
		{"it sends nothing", nil, 5 * time.Second, true},
		{"it never completes its header", append([]string{request}, strings.Split(strings.Repeat("X: y\r\n", 60), "\n")...), 5 * time.Second, true},
		{"it never completes its body", append([]string{request + "Content-Length: 100\r\n\r\n"}, strings.Split(strings.Repeat("x", 60), "")...), 10 * time.Second, true},
		{"it has no further request", []string{request + "\r\n"}, 75 * time.Second, true},
		{"it does not read its answer", []string{request + "\r\n"}, 20 * time.Second, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := admin.NewServer(t.Context(), admin.Config{Addr: "127.0.0.1:8080"}, fine())
				listener := pipes{make(chan net.Conn), make(chan struct{})}
				go func() { _ = server.Serve(listener) }()
				ours, theirs := net.Pipe()
				begun, ended := time.Now(), make(chan time.Time, 1)
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
				if got := (<-ended).Sub(begun); got.Truncate(time.Second) != test.want {
					t.Errorf("disconnected after %s, expected %s", got, test.want)
				}
				_ = ours.Close()
				kit.Check(t, server.Close())
			})
		})
	}
}

// memory is a server whose connections are in memory. It ends with the test.
type memory struct {
	t        *testing.T
	listener pipes
}

func inMemory(t *testing.T, probes admin.Probes) memory {
	server := admin.NewServer(t.Context(), admin.Config{Addr: "127.0.0.1:8080"}, probes)
	listener := pipes{make(chan net.Conn), make(chan struct{})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { kit.Check(t, server.Close()) })
	return memory{t, listener}
}

// open opens a connection and sends a text, as far as the server takes it. ended has a time once the server
// closes it.
func (m memory) open(text string) (ours net.Conn, ended chan time.Time) {
	ours, theirs := net.Pipe()
	m.t.Cleanup(func() { _ = ours.Close() })
	ended = make(chan time.Time, 1)
	m.listener.accepted <- &watched{Conn: theirs, ended: ended}
	go func() { _, _ = io.WriteString(ours, text) }()
	return ours, ended
}

// Somebody who opens connections and leaves them, in whatever state, has no more than the bound, and keeps no
// probe out.
func TestManyConnectionsKeepNobodyOut(t *testing.T) {
	const request = "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
	for _, test := range []struct {
		name, sent string
		reads      bool // the answers
	}{
		{"nothing", "", false},
		{"half a header", request, false},
		{"a body that does not come", request + "Content-Length: 200000\r\n\r\n", false},
		{"an answer that is not read", request + "\r\n", false},
		{"many answers that are not read", strings.Repeat(request+"\r\n", 100), false},
		{"no further request", request + "\r\n", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, begun := inMemory(t, fine()), time.Now()
				ended := make([]chan time.Time, admin.MostConnections+100)
				for i := range ended {
					var ours net.Conn
					ours, ended[i] = m.open(test.sent)
					if test.reads {
						go func() { _, _ = io.Copy(io.Discard, ours) }()
					}
					synctest.Wait()
				}
				probe, _ := m.open(request + "\r\n")
				if response, err := http.ReadResponse(bufio.NewReader(probe), nil); err != nil || response.StatusCode != http.StatusOK {
					t.Errorf("%v, expected the probe to get 200", err)
				}
				for i := range ended {
					if closed := len(ended[i]) == 1; closed != (i <= 100) {
						t.Errorf("connection %d: closed is %t, expected the 101 oldest to give way and no other", i, closed)
					}
				}
				if took := time.Since(begun); took > 0 { // so it was not their time limit that ended them
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// A connection in use does not give way to one that is left, however long it has been open.
func TestWhatIsInUseKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := inMemory(t, fine())
		ours, ended := m.open("")
		answers := bufio.NewReader(ours)
		for range 2 * admin.MostConnections {
			m.open("GET /healthz HTTP/1.1\r\n")
			_, err := fmt.Fprint(ours, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
			kit.Check(t, err)
			response, err := http.ReadResponse(answers, nil)
			kit.Check(t, err)
			_, err = io.Copy(io.Discard, response.Body)
			kit.Check(t, err)
			synctest.Wait()
		}
		if len(ended) > 0 {
			t.Error("it was closed")
		}
	})
}

// Requests of connections that gave way do not go on: nobody can make more of them wait than there are
// places.
func TestAConnectionThatGivesWayEndsItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, begun := make(chan time.Time, 1), time.Now()
		probes := fine()
		probes.Metrics = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			ended <- time.Now()
		})
		m := inMemory(t, probes)
		m.open("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 200000\r\n\r\n")
		synctest.Wait()
		for range admin.MostConnections {
			m.open("")
		}
		if took := (<-ended).Sub(begun); took > 0 {
			t.Errorf("it ended after %s, expected it to end with its connection", took)
		}
	})
}

// What is longer than any real header is refused, and what browsers send along is not.
func TestAHeaderIsBounded(t *testing.T) {
	server, _ := start(t, fine())
	for size, want := range map[int]int{30_000: 200, 40_000: 431, 100_000: 431} {
		response, _ := send(t, server, "GET /healthz HTTP/1.1", "Host: 127.0.0.1", "Cookie: "+strings.Repeat("x", size))
		if response.StatusCode != want {
			t.Errorf("a header of %d bytes: %d, expected %d", size, response.StatusCode, want)
		}
	}
}
