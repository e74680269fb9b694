package kit

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// NATSCluster starts n NATS servers with JetStream as one cluster, and returns when it takes streams. It ends
// with the test. change may be nil; it changes the options of each server before that starts, by its number
// from 0.
func NATSCluster(t testing.TB, n int, change func(number int, options *server.Options)) []*server.Server {
	t.Helper()
	for range 5 { // another process may take a port before its server does
		if servers := tryNATSCluster(t, n, change); servers != nil {
			return servers
		}
	}
	t.Fatal("a server of the NATS cluster does not answer")
	return nil
}

// tryNATSCluster returns nil where a server did not get its port.
func tryNATSCluster(t testing.TB, n int, change func(number int, options *server.Options)) []*server.Server {
	t.Helper()
	var routes []*url.URL
	kept := make([]net.Listener, n) // the ports, until their servers start
	for i := range kept {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		Check(t, err)
		defer func() { _ = listener.Close() }() // it may be closed already
		kept[i] = listener
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
			// The name keeps servers of another cluster out that find one of these ports.
			Cluster: server.ClusterOpts{
				Name: "test-" + routes[0].Port(),
				Host: "127.0.0.1",
				Port: kept[i].Addr().(*net.TCPAddr).Port,
			},
			Routes: routes,
		}
		if change != nil {
			change(i, options)
		}
		started, err := server.NewServer(options)
		Check(t, err)
		Check(t, kept[i].Close())
		started.Start()
		t.Cleanup(func() { started.Shutdown(); started.WaitForShutdown() })
		servers[i] = started
	}
	for _, started := range servers {
		if !started.ReadyForConnections(Patience / 4) {
			for _, other := range servers {
				other.Shutdown()
			}
			return nil
		}
	}
	js := JetStream(t, servers[0].ClientURL())
	Eventually(t, "the NATS cluster has a leader, and all servers in it", func() bool {
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
