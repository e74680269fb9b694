package admin

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// mostConnections is how many connections the server has at a time.
const mostConnections = 256

// connections bounds how many connections there are. One too many costs the connection its place on which
// nothing has changed for longest, whatever state it is in: a client can stay in each of them without doing
// anything. So a probe gets through while somebody keeps all places. To refuse new ones instead would keep
// out just the probe.
type connections struct {
	mu      sync.Mutex
	changes uint64
	open    map[net.Conn]*place // without those that gave way and are about to be closed
}

// place is that of one connection.
type place struct {
	since uint64             // the change by which it came into its state
	end   context.CancelFunc // ends its requests
}

func newConnections() *connections { return &connections{open: map[net.Conn]*place{}} }

// accepted gives a connection a place; it is the ConnContext hook of http.Server, which precedes the first
// state. The context that it returns ends with the connection, also during a request whose body has not
// arrived.
func (c *connections) accepted(ctx context.Context, connection net.Conn) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, end := context.WithCancel(ctx)
	c.changes++
	c.open[connection] = &place{since: c.changes, end: end}
	if len(c.open) > mostConnections {
		c.closeOldest()
	}
	return ctx
}

// changed follows a connection; it is the ConnState hook of http.Server.
func (c *connections) changed(connection net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own, found := c.open[connection]
	switch {
	case !found: // it gave way
	case state == http.StateClosed || state == http.StateHijacked:
		own.end()
		delete(c.open, connection)
	default:
		c.changes++
		own.since = c.changes
	}
}

// closeOldest closes the connection that has not changed for longest. c.mu is held.
func (c *connections) closeOldest() {
	var oldest net.Conn
	for connection, own := range c.open {
		if oldest == nil || own.since < c.open[oldest].since {
			oldest = connection
		}
	}
	c.open[oldest].end()
	delete(c.open, oldest)
	_ = oldest.Close() // its requests fail; there is nobody to report an error to
}
