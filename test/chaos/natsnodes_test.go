package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/test/kit"
)

// natsServers is the size of the cluster. Streams and consumers have a replica on each server.
const natsServers = 3

var natsServer = &kit.Program{Package: "notifier/test/chaos/natsserver"}

// natsNode is one NATS server of a cluster, across restarts.
type natsNode struct {
	t             *testing.T
	name          string
	addr, monitor string
	configuration string // path
	command       *exec.Cmd
	ended         <-chan struct{}
}

// startNATSCluster starts the servers as processes that end with the test, and waits until all are
// healthy. It writes their logs to the folder logs.
func startNATSCluster(t *testing.T, logs string) []*natsNode {
	t.Helper()
	folder := t.TempDir()
	nodes, routes := make([]*natsNode, natsServers), make([]string, natsServers)
	for i := range nodes {
		nodes[i] = &natsNode{t: t, name: fmt.Sprintf("n%d", i+1), addr: kit.FreeAddr(t), monitor: kit.FreeAddr(t)}
		routes[i] = kit.FreeAddr(t)
	}
	for i, n := range nodes {
		n.configuration = filepath.Join(folder, n.name+".conf")
		text := fmt.Sprintf("server_name: %s\nlisten: %q\nhttp: %q\nlog_file: %q\nlogtime: true\nlogtime_utc: true\njetstream { store_dir: %q, max_file: 1G, max_mem: 16M }\n"+
			"cluster { name: %q, listen: %q, routes: [\"nats://%s\"] }\n",
			n.name, n.addr, n.monitor, filepath.Join(logs, n.name+".log"), filepath.Join(folder, n.name),
			"chaos-"+routes[0], routes[i], strings.Join(routes, `", "nats://`))
		kit.Check(t, os.WriteFile(n.configuration, []byte(text), 0o600))
		kit.Check(t, n.start())
	}
	for _, n := range nodes {
		kit.EventuallyNil(t, n.healthy)
	}
	return nodes
}

// urlOf returns the value of NATS_URL for these servers.
func urlOf(nodes []*natsNode) string {
	var urls []string
	for _, n := range nodes {
		urls = append(urls, "nats://"+n.addr)
	}
	return strings.Join(urls, ",")
}

func (n *natsNode) start() (err error) {
	n.command = exec.Command(natsServer.Build(n.t, folder), n.configuration)
	n.command.Stderr = os.Stderr // only reasons for a failed start; the rest goes to the log file
	n.ended, err = kit.StartWithTest(n.t, n.command)
	return err
}

// kill ends the server like a crash, and waits for the end of its process.
func (n *natsNode) kill() error {
	if err := n.command.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", n.name, err)
	}
	<-n.ended
	return nil
}

// healthy returns nil if the server's streams, consumers and cluster metadata are up to date.
func (n *natsNode) healthy() error { return n.ask("/healthz", nil) }

// ask queries the server's monitoring port, and decodes the response into reply unless reply is nil.
func (n *natsNode) ask(path string, reply any) error {
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + n.monitor + path)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s%s", n.name, response.Status, path)
	}
	if reply == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(reply)
}

// Kinds of leaders that the workers depend on.
const (
	leadsStream   = "stream leader"
	leadsConsumer = "consumer leader"
	leadsCluster  = "meta leader"
	leadsIdle     = "consumer leader, idle" // killed while there is nothing to deliver
)

// leader returns the current leader of a kind.
func (c *cluster) leader(ctx context.Context, kind string) (*natsNode, error) {
	var name string
	switch kind {
	case leadsCluster:
		var reply struct {
			Meta struct{ Leader string } `json:"meta_cluster"`
		}
		if err := c.nodes[0].ask("/jsz", &reply); err != nil {
			return nil, err
		}
		name = reply.Meta.Leader
	case leadsStream:
		stream, err := c.d.js.Stream(ctx, streamName)
		if err != nil {
			return nil, err
		}
		name = leaderIn(stream.CachedInfo().Cluster)
	default: // leadsConsumer, leadsIdle
		consumer, err := c.d.js.Consumer(ctx, streamName, consumerName)
		if err != nil {
			return nil, err
		}
		name = leaderIn(consumer.CachedInfo().Cluster)
	}
	for _, n := range c.nodes {
		if n.name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("%s: %q, which is none of the servers", kind, name)
}

func leaderIn(info *jetstream.ClusterInfo) string {
	if info == nil {
		return ""
	}
	return info.Leader
}

// replicated returns nil if the stream and its consumer are fully replicated and all servers are healthy.
func (c *cluster) replicated(ctx context.Context) error {
	stream, err := c.d.js.Stream(ctx, streamName)
	if err != nil {
		return err
	}
	consumer, err := c.d.js.Consumer(ctx, streamName, consumerName)
	if err != nil {
		return err
	}
	for _, info := range []*jetstream.ClusterInfo{stream.CachedInfo().Cluster, consumer.CachedInfo().Cluster} {
		if info == nil || len(info.Replicas) != natsServers-1 {
			return errors.New("there are not three copies")
		}
		for _, peer := range info.Replicas {
			if peer.Offline || !peer.Current {
				return fmt.Errorf("%s lags behind", peer.Name)
			}
		}
	}
	for _, n := range c.nodes {
		if err := n.healthy(); err != nil {
			return err
		}
	}
	return nil
}
