package preflight

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// adminTimeout is for an answer of this host.
const adminTimeout = 2 * time.Second

// checkAdminAddr looks whether somebody listens at the address of the admin server already, on the host on which this runs. It asks
// and does not listen itself. A worker there is most likely the one that these settings are for.
func checkAdminAddr(ctx context.Context, addr string, r *report) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "0" {
		return
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		if !errors.Is(err, syscall.ECONNREFUSED) && isLoopback(host) && ctx.Err() == nil {
			r.note("", "whether ADMIN_ADDR %s is free is unknown: %v", addr, err)
		}
		return
	}
	_ = connection.Close() // nothing was sent
	if isWorker(ctx, net.JoinHostPort(host, port)) {
		r.note("another worker on this host needs another ADMIN_ADDR", "a worker runs on this host, and has ADMIN_ADDR %s", addr)
		return
	}
	r.warn("set ADMIN_ADDR to a free one", "ADMIN_ADDR %s is taken by another program on this host: a worker would not start here", addr)
}

// isWorker reports whether an admin server of notifier answers.
func isWorker(ctx context.Context, addr string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/healthz", nil)
	if err != nil {
		return false
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // no proxy
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 16))
	return err == nil && response.StatusCode == http.StatusOK && strings.TrimSpace(string(body)) == "ok"
}
