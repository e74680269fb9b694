package kit

import (
	"io"
	"net"
	"sync"
	"testing"
)

// FreezingProxy forwards TCP connections and can freeze them: a frozen connection stays open and passes
// nothing on, as a firewall does that has forgotten its state. It forwards later connections.
type FreezingProxy struct {
	Addr string

	mu     sync.Mutex
	frozen chan struct{} // closed by Freeze; each Freeze replaces it
	open   int
}

// StartFreezingProxy starts a proxy in front of a TCP address. It ends with the test.
func StartFreezingProxy(t testing.TB, target string) *FreezingProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Check(t, err)
	p := &FreezingProxy{Addr: listener.Addr().String(), frozen: make(chan struct{})}
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.forward(client, target, ended) })
		}
	})
	t.Cleanup(func() {
		close(ended)
		_ = listener.Close()
		running.Wait()
	})
	return p
}

// Freeze freezes all connections that are open now, and returns their number.
func (p *FreezingProxy) Freeze() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	count := p.open
	close(p.frozen)
	p.frozen, p.open = make(chan struct{}), 0
	return count
}

// forward serves one connection. A frozen one stays open until the test ends.
func (p *FreezingProxy) forward(client net.Conn, target string, ended <-chan struct{}) {
	p.mu.Lock()
	frozen := p.frozen
	p.open++
	p.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		_ = client.Close()
		return
	}
	finished := make(chan struct{}, 2)
	var passing sync.WaitGroup
	defer func() {
		_ = client.Close()
		_ = server.Close()
		passing.Wait()
	}()
	pass := func(to io.Writer, from io.Reader) {
		buffer := make([]byte, 32<<10)
		for {
			n, err := from.Read(buffer)
			select {
			case <-frozen:
				return
			default:
			}
			if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
				finished <- struct{}{}
				return
			}
		}
	}
	passing.Go(func() { pass(server, client) })
	passing.Go(func() { pass(client, server) })
	select {
	case <-finished:
		p.mu.Lock()
		if p.frozen == frozen {
			p.open--
		}
		p.mu.Unlock()
	case <-frozen:
		<-ended
	case <-ended:
	}
}
