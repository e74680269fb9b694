package devstack

import (
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"
)

// listen listens on addr (host:port), or on a free port of the same host if that one is taken.
func listen(addr string) (net.Listener, error) {
	listener, err := net.Listen("tcp", addr)
	if err == nil {
		return listener, nil
	}
	host, _, splitErr := net.SplitHostPort(addr)
	if splitErr != nil {
		return nil, fmt.Errorf("address %q, expected host:port", addr)
	}
	return net.Listen("tcp", net.JoinHostPort(host, "0"))
}

// Released waits until an address can be listened on. A process that is being started holds a copy of every
// listener of this one, for long where the machine is busy, also of a listener that was closed meanwhile.
func Released(addr string) error {
	for deadline := time.Now().Add(natsStart); ; time.Sleep(10 * time.Millisecond) {
		syscall.ForkLock.RLock() // or the next process gets a copy of this one
		listener, err := net.Listen("tcp", addr)
		if err == nil {
			err = listener.Close()
		}
		syscall.ForkLock.RUnlock()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// reachable returns the host:port at which this machine can reach a listener: one on all addresses is on the
// loopback address too.
func reachable(addr net.Addr) string {
	tcp := addr.(*net.TCPAddr)
	if tcp.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
	}
	return tcp.String()
}

// FreeAddr returns addr if it is free, or else a free port of the same host. If the host has no free port, it
// returns addr.
func FreeAddr(addr string) string {
	listener, err := listen(addr)
	if err != nil {
		return addr
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
