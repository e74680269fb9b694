package redistest

import (
	"fmt"
	"net"
	"strconv"
	"testing"

	"notifier/test/kit"
)

// Identity has the loopback address that a server announces, and the names and addresses in its certificate.
type Identity struct {
	Address string
	Names   []string
}

// TLS is a server that listens at a second address, for clients with TLS.
type TLS struct {
	*Server        // without TLS, for the tests themselves
	Addr    string // with TLS
}

// startTLS starts a server that also accepts TLS, with a certificate of the authority.
func startTLS(tb testing.TB, where place, mode mode, by *kit.Authority, who Identity, extra ...string) TLS {
	tb.Helper()
	if where.container != "" {
		tb.Skip("the container has no certificates")
	}
	port, err := kit.FreePort()
	kit.Check(tb, err)
	certFile, keyFile := by.Issue(tb, who.Names...)
	extra = append([]string{
		"--tls-port", strconv.Itoa(port), "--tls-cert-file", certFile, "--tls-key-file", keyFile,
		"--tls-ca-cert-file", by.File, "--tls-auth-clients", "no", "--tls-replication", "yes",
		"--bind", "127.0.0.1", who.Address,
	}, extra...)
	return TLS{Server: startServer(tb, where, mode, extra), Addr: net.JoinHostPort(who.Address, strconv.Itoa(port))}
}

// StartTLSServer starts one server.
func StartTLSServer(tb testing.TB, by *kit.Authority, who Identity, extra ...string) TLS {
	tb.Helper()
	return startTLS(tb, needPlace(tb), standalone, by, who, extra...)
}

// StartTLSCluster starts a Cluster of masters that announce their addresses.
func StartTLSCluster(tb testing.TB, by *kit.Authority, masters ...Identity) []TLS {
	tb.Helper()
	where := needPlace(tb)
	c := &Cluster{}
	var nodes []TLS
	for i, who := range masters {
		node := startTLS(tb, where, clusterNode, by, who, "--tls-cluster", "yes", "--cluster-announce-ip", who.Address)
		nodes, c.Nodes = append(nodes, node), append(c.Nodes, node.Server)
		c.own(tb, i, len(masters))
	}
	for _, node := range nodes[1:] {
		host, port, _ := net.SplitHostPort(nodes[0].Addr)
		node.do(tb, "CLUSTER", "MEET", host, port, c.Nodes[0].bus)
	}
	c.wait(tb)
	return nodes
}

// StartTLSSentinel starts a Sentinel that watches over a server under the name "main".
func StartTLSSentinel(tb testing.TB, by *kit.Authority, who Identity, primary TLS, extra ...string) TLS {
	tb.Helper()
	watcher := startTLS(tb, needPlace(tb), sentinel, by, who, extra...)
	host, port, _ := net.SplitHostPort(primary.Addr)
	watcher.do(tb, "SENTINEL", "MONITOR", "main", host, port, 1)
	kit.Check(tb, within(startDeadline, func() error {
		main, err := watcher.try("SENTINEL", "MASTER", "main")
		if err == nil && main.(map[any]any)["flags"] != "master" {
			err = fmt.Errorf("sentinel %s does not reach the primary: %v", watcher.Addr, main)
		}
		return err
	}))
	return watcher
}
