//go:build !production

package devstack

import (
	"fmt"
	"net"
)

// listen listens on addr (host:port), or on a free port of the same host where that one is taken.
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

// FreeAddr is addr if it can be listened on, else a free port of the same host; addr itself where there is none.
func FreeAddr(addr string) string {
	listener, err := listen(addr)
	if err != nil {
		return addr
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
