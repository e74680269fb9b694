package natstest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/test/kit"
)

// Cluster starts a JetStream cluster of n servers, waits until a stream can be created, and stops it when
// the test ends. change, if not nil, may change the options of a server, by its number from 0, before that
// starts. It is called again if the cluster has to be tried again.
func Cluster(t testing.TB, n int, change func(number int, options *server.Options)) []*server.Server {
	t.Helper()
	for range 5 { // another process may take a port before its server does
		if servers := tryCluster(t, n, change); servers != nil {
			return servers
		}
	}
	t.Fatal("a server of the NATS cluster does not answer")
	return nil
}

// tryCluster returns nil if a server is not ready in time, usually because another process took its port.
func tryCluster(t testing.TB, n int, change func(number int, options *server.Options)) []*server.Server {
	t.Helper()
	var routes []*url.URL
	reserved := make([]net.Listener, n) // the ports, until their servers start
	for i := range reserved {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		kit.Check(t, err)
		defer func() { _ = listener.Close() }() // it may be closed already
		reserved[i] = listener
		routes = append(routes, &url.URL{Scheme: "nats", Host: listener.Addr().String()})
	}
	servers := make([]*server.Server, n)
	for i := range servers {
		options := &server.Options{
			ServerName:         fmt.Sprintf("n%d", i),
			Host:               "127.0.0.1",
			Port:               server.RANDOM_PORT,
			NoSigs:             true,
			NoLog:              true,
			JetStream:          true,
			StoreDir:           t.TempDir(),
			JetStreamMaxStore:  1 << 30,
			JetStreamMaxMemory: 1 << 20,
			// The name is unique, so a server of another test that connects to one of these ports is refused.
			Cluster: server.ClusterOpts{
				Name: "test-" + routes[0].Port(),
				Host: "127.0.0.1",
				Port: reserved[i].Addr().(*net.TCPAddr).Port,
			},
			Routes: routes,
		}
		if change != nil {
			change(i, options)
		}
		started, err := server.NewServer(options)
		kit.Check(t, err)
		kit.Check(t, reserved[i].Close())
		started.Start()
		t.Cleanup(func() { started.Shutdown(); started.WaitForShutdown() })
		servers[i] = started
	}
	for _, started := range servers {
		if !started.ReadyForConnections(kit.Patience / 4) {
			for _, other := range servers {
				other.Shutdown()
			}
			return nil
		}
	}
	js := kit.JetStream(t, servers[0].ClientURL())
	kit.Eventually(t, "the NATS cluster takes a stream", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		probe := jetstream.StreamConfig{
			Name:     "probe",
			Subjects: []string{"probe"},
			Replicas: min(n, 3),
			MaxBytes: 1,
		}
		if _, err := js.CreateStream(ctx, probe); err != nil {
			return false
		}
		return js.DeleteStream(ctx, "probe") == nil
	})
	return servers
}
