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

// natsServers is how many servers the cluster has: each stream and consumer has a copy on each of them.
const natsServers = 3

// natsServer is the program of one of them.
var natsServer = &kit.Program{Package: "notifier/test/chaos/natsserver"}

// natsNode is one NATS server of a cluster, through all its processes.
type natsNode struct {
	t             *testing.T
	name          string
	addr, monitor string
	configuration string // path
	command       *exec.Cmd
	ended         <-chan struct{}
}

// startNATSCluster starts the servers as processes that end with the test, and waits until all are well. Their
// logs go to a folder.
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

// urlOf is what NATS_URL would be.
func urlOf(nodes []*natsNode) string {
	var urls []string
	for _, n := range nodes {
		urls = append(urls, "nats://"+n.addr)
	}
	return strings.Join(urls, ",")
}

func (n *natsNode) start() (err error) {
	n.command = exec.Command(natsServer.Build(n.t, folder), n.configuration)
	n.command.Stderr = os.Stderr // it has a log file, so this is only why it could not start
	n.ended, err = kit.StartWithTest(n.t, n.command)
	return err
}

// kill ends the server as a crash would.
func (n *natsNode) kill() error {
	if err := n.command.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %d", n.name, err)
	}
	<-n.ended
	return nil
}

// healthy is nil when the server has all that the others have: its streams, its consumers and what the
// cluster knows of them.
func (n *natsNode) healthy() error { return n.ask("/healthz", nil) }

// ask asks the server's monitoring port. What answers is decoded into reply, unless that is nil.
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

// The leaders that a cluster has for what workers use.
const (
	leadsStream   = "stream leader"
	leadsConsumer = "consumer leader"
	leadsCluster  = "meta leader"
	leadsIdle     = "consumer leader, idle" // while there is nothing to be delivered
)

// leader is the server that leads now.
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
	default: // of the consumer
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

// replicated is nil when each server has all of the stream and of its consumer.
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
