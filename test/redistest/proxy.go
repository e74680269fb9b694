package redistest

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"notifier/test/kit"
)

// Fault is a failure of one script call in transit.
type Fault int

const (
	LoseRequest Fault = iota // the connection ends before the server has it
	LoseReply                // the server runs it, and the connection ends without a reply
	CutReply                 // the connection ends in the middle of the reply
	Silence                  // the server runs it, and nothing comes back; the connection stays
)

// Faults are all of them, by their names.
var Faults = map[string]Fault{
	"request lost": LoseRequest,
	"reply lost":   LoseReply,
	"reply cut":    CutReply,
	"silence":      Silence,
}

// Proxy stands between clients and one server, and injects faults.
type Proxy struct {
	Addr string

	mu      sync.Mutex
	target  string
	cut     bool
	alone   bool // see CutReplication
	ended   bool
	delay   time.Duration
	faults  []Fault // for the next script calls
	scripts int
	pipes   map[*pipe]struct{}
}

// pipe is one client's connection.
type pipe struct {
	client, server net.Conn
	mute           bool   // nothing passes any more in either direction
	replication    bool   // a replica gets its copy through it
	reply          *Fault // fault for the next bytes from the server
}

// StartProxy starts a proxy on a free loopback port that ends with the test.
func StartProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Check(tb, err)
	p := &Proxy{Addr: listener.Addr().String(), target: target, pipes: map[*pipe]struct{}{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(client) })
		}
	})
	tb.Cleanup(func() {
		_ = listener.Close()
		p.mu.Lock()
		p.ended = true
		p.mu.Unlock()
		p.hangUp()
		running.Wait()
	})
	return p
}

// Break makes the next script calls fail, one fault each.
func (p *Proxy) Break(faults ...Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, faults...)
}

// Delay makes each round trip of new connections take longer, like a distant server. It limits no throughput.
// The first byte waits for two round trips, because making a connection takes one.
func (p *Proxy) Delay(roundTrip time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = roundTrip
}

// Scripts counts the script calls that have reached the server.
func (p *Proxy) Scripts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.scripts
}

// Cut lets nothing pass any more, without a word to either side, as a network that drops packets does.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for pipe := range p.pipes {
		pipe.mute = true
	}
}

// CutReplication blocks all traffic with replicas, so that they miss the primary's later writes. Other
// clients are not affected.
func (p *Proxy) CutReplication() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alone = true
	for pipe := range p.pipes {
		pipe.mute = pipe.mute || pipe.replication
	}
}

// Heal ends a cut. Connections that it has hit are closed.
func (p *Proxy) Heal() {
	p.mu.Lock()
	p.cut = false
	p.mu.Unlock()
	p.hangUp()
}

// Redirect ends all connections, and lets new ones lead to another server: as a name or an address that is
// moved.
func (p *Proxy) Redirect(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.hangUp()
}

func (p *Proxy) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pipe := range p.pipes {
		pipe.close()
	}
}

func (c *pipe) close() {
	_ = c.client.Close()
	_ = c.server.Close()
}

func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	target, delay := p.target, p.delay
	p.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		_ = client.Close()
		return
	}
	c := &pipe{client: client, server: server}
	p.mu.Lock()
	c.mute = p.cut
	p.pipes[c] = struct{}{}
	if p.ended {
		c.close()
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.pipes, c)
		p.mu.Unlock()
	}()
	var replies sync.WaitGroup
	replies.Go(func() { p.pass(c, server, client, p.onReply) })
	requests := io.Reader(client)
	if delay > 0 {
		requests = newSlowReader(client, delay)
	}
	p.pass(c, requests, server, p.onRequest)
	replies.Wait()
}

// slowReader returns bytes after a delay, as if they had been on their way.
type slowReader struct{ arriving chan arriving }

type arriving struct {
	data []byte
	due  time.Time
	err  error
}

// newSlowReader reads ahead until the first error, which closing the source causes. The queue has room for
// all that a client sends before it waits for a reply.
func newSlowReader(source io.Reader, delay time.Duration) *slowReader {
	r := &slowReader{arriving: make(chan arriving, 1024)}
	go func() {
		made := time.Now().Add(delay)
		for {
			data := make([]byte, 4<<10)
			n, err := source.Read(data)
			due := time.Now()
			if due.Before(made) {
				due = made
			}
			r.arriving <- arriving{data[:n], due.Add(delay), err}
			if err != nil {
				return
			}
		}
	}()
	return r
}

func (r *slowReader) Read(buffer []byte) (int, error) {
	next := <-r.arriving
	time.Sleep(time.Until(next.due))
	return copy(buffer, next.data), next.err
}

// pass forwards data, as changed by edit, until one side ends.
func (p *Proxy) pass(
	c *pipe, from io.Reader, to net.Conn, edit func(c *pipe, data []byte) (pass []byte, end bool),
) {
	defer c.close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		p.mu.Lock()
		data, end := edit(c, buffer[:n])
		if c.mute {
			data = nil
		}
		p.mu.Unlock()
		if len(data) > 0 {
			if _, err := to.Write(data); err != nil {
				return
			}
		}
		if end {
			return
		}
	}
}

// onRequest is called with the lock held. A client writes the head of a call at once.
func (p *Proxy) onRequest(c *pipe, data []byte) (pass []byte, end bool) {
	head := bytes.ToLower(data[:min(len(data), 64)])
	if bytes.Contains(head, []byte("\r\nreplconf\r\n")) || bytes.Contains(head, []byte("\r\npsync\r\n")) {
		c.replication = true
		c.mute = c.mute || p.alone
	}
	if c.mute ||
		!bytes.Contains(head, []byte("\r\nevalsha\r\n")) && !bytes.Contains(head, []byte("\r\neval\r\n")) {
		return data, false
	}
	if len(p.faults) > 0 {
		fault := p.faults[0]
		p.faults = p.faults[1:]
		if fault == LoseRequest {
			return nil, true
		}
		c.reply = &fault
	}
	p.scripts++
	return data, false
}

// onReply is called with the lock held.
func (p *Proxy) onReply(c *pipe, data []byte) (pass []byte, end bool) {
	switch {
	case c.reply == nil:
		return data, false
	case *c.reply == LoseReply:
		return nil, true
	case *c.reply == CutReply:
		return data[:len(data)/2], true
	default:
		return nil, false
	}
}
