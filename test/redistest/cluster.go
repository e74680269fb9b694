package redistest

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"notifier/test/kit"
)

const slots = 16384

// Cluster is a Redis Cluster of server processes.
type Cluster struct{ Nodes []*Server }

// StartCluster starts a Cluster of masters, which share the slots evenly and have no replicas. extra are
// further redis-server arguments. It takes about two seconds, the delay before a master takes part.
func StartCluster(tb testing.TB, masters int, extra ...string) *Cluster {
	tb.Helper()
	where, why := findPlace(tb)
	if why != "" {
		tb.Skipf("needs redis-server processes: %s", why)
	}
	return startCluster(tb, where, masters, extra)
}

func startCluster(tb testing.TB, where place, masters int, extra []string) *Cluster {
	tb.Helper()
	c := &Cluster{}
	for i := range masters {
		node := startServer(tb, where, clusterNode, extra)
		c.Nodes = append(c.Nodes, node)
		c.own(tb, i, masters)
	}
	for _, node := range c.Nodes[1:] {
		c.meet(tb, node)
	}
	c.wait(tb)
	return c
}

// own assigns the i-th master its share of the slots.
func (c *Cluster) own(tb testing.TB, i, masters int) {
	tb.Helper()
	c.Nodes[i].do(tb, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
	c.Nodes[i].do(tb, "CLUSTER", "ADDSLOTSRANGE", i*slots/masters, (i+1)*slots/masters-1)
}

func (c *Cluster) meet(tb testing.TB, node *Server) {
	tb.Helper()
	host, port, _ := net.SplitHostPort(c.Nodes[0].Addr)
	node.do(tb, "CLUSTER", "MEET", host, port, c.Nodes[0].bus)
}

// wait waits until every node sees all others and all slots.
func (c *Cluster) wait(tb testing.TB) {
	tb.Helper()
	err := within(startDeadline, func() error {
		for _, node := range c.Nodes {
			info, err := node.try("CLUSTER", "INFO")
			if err != nil {
				return err
			}
			text := fmt.Sprint(info)
			if field(text, "cluster_state") != "ok" ||
				field(text, "cluster_known_nodes") != strconv.Itoa(len(c.Nodes)) {
				return fmt.Errorf("node %s of the cluster is not ready: %s", node.Addr, text)
			}
		}
		return nil
	})
	kit.Check(tb, err)
}

// URL returns the cluster's REDIS_URL.
func (c *Cluster) URL() string {
	url := "redis://" + c.Nodes[0].Addr
	for i, node := range c.Nodes {
		if i == 0 {
			url += "?addr=" + node.Addr
		} else {
			url += "&addr=" + node.Addr
		}
	}
	return url
}

// server is the Cluster as the one store of a test.
func (c *Cluster) server() *Server { return &Server{Addr: c.Nodes[0].Addr, cluster: c} }

// Owner is the node that holds the slot of a key, by its own account.
func (c *Cluster) Owner(tb testing.TB, key string) *Server {
	tb.Helper()
	slot := c.Nodes[0].do(tb, "CLUSTER", "KEYSLOT", key).(int64)
	for _, node := range c.Nodes {
		for _, field := range node.do(tb, "CLUSTER", "SLOTS").([]any) {
			// First and last slot, then the nodes: the master comes first, with its host and port.
			span := field.([]any)
			master := span[2].([]any)
			addr := net.JoinHostPort(fmt.Sprint(master[0]), fmt.Sprint(master[1]))
			if span[0].(int64) <= slot && slot <= span[1].(int64) && addr == node.Addr {
				return node
			}
		}
	}
	tb.Fatalf("no node holds slot %d", slot)
	return nil
}

// Other is a master that does not hold the key's slot.
func (c *Cluster) Other(tb testing.TB, key string) *Server {
	tb.Helper()
	owner := c.Owner(tb, key)
	for _, node := range c.Nodes {
		if node != owner && node.is("master") == nil {
			return node
		}
	}
	tb.Fatal("there is one master only")
	return nil
}

// MoveSlot moves the slot of a key to another node, a key at a time, as redis-cli and operators do. It calls
// during after each step that clients can observe, with the name of the step.
func (c *Cluster) MoveSlot(tb testing.TB, key string, to *Server, during func(done string)) {
	tb.Helper()
	from := c.Owner(tb, key)
	slot := from.do(tb, "CLUSTER", "KEYSLOT", key)
	fromID, toID := from.do(tb, "CLUSTER", "MYID"), to.do(tb, "CLUSTER", "MYID")
	host, port, _ := net.SplitHostPort(to.Addr)

	to.do(tb, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	from.do(tb, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	during("the slot is marked as migrating")
	for {
		keys := from.do(tb, "CLUSTER", "GETKEYSINSLOT", slot, 1).([]any)
		if len(keys) == 0 {
			break
		}
		from.do(tb, "MIGRATE", host, port, keys[0], 0, 5000)
		during(fmt.Sprintf("%s is moved", keys[0]))
	}
	for _, node := range []*Server{to, from} {
		node.do(tb, "CLUSTER", "SETSLOT", slot, "NODE", toID)
		during(fmt.Sprintf("%s knows the new owner", node.Addr))
	}
}

// AddReplica starts a replica of a master and waits until it has a copy.
func (c *Cluster) AddReplica(tb testing.TB, of *Server) *Server {
	tb.Helper()
	replica := startServer(tb, of.place, clusterNode, of.extra)
	c.Nodes = append(c.Nodes, replica)
	c.meet(tb, replica)
	id := of.do(tb, "CLUSTER", "MYID")
	err := within(startDeadline, func() error {
		_, err := replica.try("CLUSTER", "REPLICATE", id) // refused until they have met
		return err
	})
	if err == nil {
		err = within(startDeadline, replica.linked)
	}
	replicaID := fmt.Sprint(replica.do(tb, "CLUSTER", "MYID"))
	for _, node := range c.Nodes {
		if err == nil { // one that takes it for a master would not let it take over
			err = within(startDeadline, func() error {
				replicas, err := node.try("CLUSTER", "REPLICAS", id)
				if err == nil && !strings.Contains(fmt.Sprint(replicas), replicaID) {
					err = fmt.Errorf("node %s does not know it", node.Addr)
				}
				return err
			})
		}
	}
	if err != nil {
		tb.Fatalf("replica %s: %v", replica.Addr, err)
	}
	c.wait(tb)
	return replica
}

// empty forgets all keys and scripts.
func (c *Cluster) empty() error {
	for _, node := range c.Nodes {
		if err := node.empty(); err != nil {
			return err
		}
	}
	return nil
}

// Promote makes a replica the master of its master's slots, without losing anything: the two agree on it.
func (c *Cluster) Promote(tb testing.TB, replica *Server) {
	tb.Helper()
	replica.do(tb, "CLUSTER", "FAILOVER")
	if err := within(startDeadline, func() error { return replica.is("master") }); err != nil {
		tb.Fatalf("%v\n%s", err, replica.place.lastWords(replica.dir))
	}
	c.wait(tb)
}
