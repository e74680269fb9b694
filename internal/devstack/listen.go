//go:build !production

package devstack

import (
	"fmt"
	"net"
	"strconv"
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

// reachable returns the host:port at which this machine can reach a listener: one on all addresses is on the loopback
// address too.
func reachable(addr net.Addr) string {
	tcp := addr.(*net.TCPAddr)
	if tcp.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
	}
	return tcp.String()
}

// FreeAddr returns addr if it is free, else a free port of the same host, or addr itself if there is none.
func FreeAddr(addr string) string {
	listener, err := listen(addr)
	if err != nil {
		return addr
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
