package ratelimit_test

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// decided repeats a request until it gets a decision.
func (c caller) decided(request ratelimit.Request) ratelimit.Decision {
	c.t.Helper()
	var decisions []ratelimit.Decision
	kit.EventuallyNil(c.t, func() (err error) {
		decisions, err = c.Admit(c.t.Context(), []ratelimit.Request{request})
		return err
	})
	return decisions[0]
}

// onOwner returns the node that owns the keys of namespace "n". It expects that no other node holds keys.
func onOwner(t *testing.T, cluster *redistest.Cluster) *store {
	t.Helper()
	owner := cluster.Owner(t, "{n}")
	for _, node := range cluster.Nodes {
		if keys := node.Client(t).Keys(t.Context(), "*").Val(); node != owner && len(keys) > 0 {
			t.Errorf("node %s, which does not own the slot, holds %q", node.Addr, keys)
		}
	}
	return onServer(t, owner)
}

// A hash slot moves key by key, and a script runs only on a node with all of its keys. While keys are on two
// nodes, calls fail but never decide wrongly.
func TestClusterMovesASlot(t *testing.T) {
	t.Parallel() // the cluster takes some seconds to start
	cluster := redistest.StartCluster(t, 2)
	client := kit.OpenRedis(t, cluster.URL())
	limiter, err := ratelimit.New(client, "n", kit.Rules("100/30m", "2/30m", ""), day)
	kit.Check(t, err)
	c := caller{Limiter: limiter, t: t}
	batch := events(3, "e", "a")
	c.admits(batch[:2]...)
	c.sent(batch[0])
	want := []ratelimit.Verdict{ratelimit.Duplicate, ratelimit.Admitted, ratelimit.Category}

	from, to := onOwner(t, cluster).server, cluster.Other(t, "{n}")
	undecided := 0
	cluster.MoveSlot(t, "{n}", to, func(string) {
		decisions, err := c.Admit(t.Context(), batch)
		if err == nil {
			sameVerdicts(t, want, decisions)
		} else if strings.Contains(err.Error(), "TRYAGAIN") {
			undecided++
		}
	})
	if undecided == 0 {
		t.Error("each call was decided: none was made while the keys were on two nodes")
	}
	kit.EventuallyNil(t, func() error { return c.Ready(t.Context()) })
	sameVerdicts(t, want, c.admit(batch...))
	s := onOwner(t, cluster)
	if s.server != to || to == from {
		t.Errorf("the slot is on %s, expected %s", s.server.Addr, to.Addr)
	}
	s.charged(t, 2)
}

// sentinel is a fake Sentinel that names the primary it was given.
type sentinel struct {
	addr  string
	names atomic.Pointer[string] // the primary's address
	asked atomic.Int64           // lookups of the primary
}

func startSentinel(t *testing.T, primary string) *sentinel {
	t.Helper()
	s := &sentinel{}
	s.names.Store(&primary)
	listening, err := server.NewServer("127.0.0.1:0")
	kit.Check(t, err)
	t.Cleanup(listening.Close)
	s.addr = listening.Addr().String()
	listening.SetPreHook(func(peer *server.Peer, command string, arguments ...string) bool {
		switch {
		case command == "SENTINEL" && arguments[0] == "get-master-addr-by-name":
			host, port, _ := net.SplitHostPort(*s.names.Load())
			s.asked.Add(1)
			peer.WriteRaw(fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port))
		case command == "SENTINEL":
			peer.WriteRaw("*0\r\n")
		case command == "INFO":
			peer.WriteRaw("$10\r\n# Sentinel\r\n")
		case command == "SUBSCRIBE":
			peer.WriteRaw("*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n")
		default:
			return false
		}
		return true
	})
	return s
}

// url returns the value for REDIS_URL.
func (s *sentinel) url() string { return "redis://" + s.addr + "/0?master_name=main" }

// deaf returns the address of a port with a full accept queue. Like a host without power, it does not even
// refuse connections.
func deaf(t *testing.T) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	kit.Check(t, err)
	file := os.NewFile(uintptr(socket), "socket")
	t.Cleanup(func() { _ = file.Close() })
	kit.Check(t, syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	kit.Check(t, syscall.Listen(socket, 0))
	bound, err := syscall.Getsockname(socket)
	kit.Check(t, err)
	addr := fmt.Sprint("127.0.0.1:", bound.(*syscall.SockaddrInet4).Port)
	for range 10 {
		connection, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { _ = connection.Close() })
	}
	t.Skip("a full queue refuses connections here")
	return ""
}

// The host of the Sentinel in use has lost power. go-redis gives a Sentinel up after an attempt that ends
// before the call, and not after a call that times out.
func TestDeadSentinelIsGivenUpInTime(t *testing.T) {
	t.Parallel()
	client, err := ratelimit.Open("redis://"+deaf(t)+"/0?master_name=main", nil)
	kit.Check(t, err)
	t.Cleanup(func() { _ = client.Close() })
	err = client.Ping(t.Context()).Err()
	if err == nil || strings.Contains(err.Error(), "context deadline exceeded") {
		t.Errorf("%v, expected the timeout of an attempt", err)
	}
}

// The host of the old primary has lost power. A worker that is still dialing it notices the new primary
// before that one opens.
func TestDeadHostIsGivenUpInTime(t *testing.T) {
	t.Parallel()
	old, promoted := redistest.StartProcess(t).Healed(t, "n"), redistest.StartProcess(t)
	sentinel := startSentinel(t, old.Addr)
	f := newFleet(t, sentinel.url())
	rules := kit.Rules("10/30m", "10/30m", "")
	a := f.join(rules, day)
	a.admits(events(10, "a", "x")...)

	gone := deaf(t)
	sentinel.names.Store(&gone)
	asked := sentinel.asked.Load()
	old.Freeze(t)
	kit.Eventually(t, "it is told to connect to the silent host", func() bool { return sentinel.asked.Load() > asked })
	sentinel.names.Store(&promoted.Addr) // too late for the first attempt
	b := f.start(rules, day, ratelimit.Healing{})
	if n := b.fill("b", "x"); n != 0 {
		t.Errorf("%d more are admitted, expected none", n)
	}
	a.printLog()
}

var scriptStatistics = regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`)

func atoi(t *testing.T, digits string) int {
	t.Helper()
	number, err := strconv.Atoi(digits)
	kit.Check(t, err)
	return number
}
