package preflight

import (
	"context"
	"net"
	"time"
)

// adminTimeout is for an answer of this host.
const adminTimeout = 2 * time.Second

// checkAdminAddr notes that somebody listens at the address of the admin server already, on the host on which
// this runs: most likely the worker that these settings are for. It asks and does not listen itself.
func checkAdminAddr(ctx context.Context, addr string, r *report) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "0" {
		return
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	dialer := net.Dialer{Timeout: adminTimeout}
	connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return
	}
	_ = connection.Close() // nothing was sent
	r.note(
		"give another worker another one",
		"ADMIN_ADDR %s is in use on this host, by a worker or another program",
		addr,
	)
}
