package redistest

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/test/kit"
)

// failoverTimeout is the time after which the Sentinels give up a stalled failover. promoteDeadline bounds
// Promoted: enough for two failovers given up, and for the half minute in which a Sentinel pauses after a
// stall of the machine.
const (
	failoverTimeout = 10 * time.Second
	promoteDeadline = 2 * time.Minute
)

// Sentinels are a primary with replicas, and three Sentinels that watch over it under the name "main".
type Sentinels struct {
	Primary  *Server // the first primary, whatever becomes of it
	Front    *Proxy  // where everybody finds it: cutting this leaves it alone with those who call it directly
	Replicas []*Server
	Watchers []*Server
	asked    bool // Failover was called: the Sentinels do not begin again by themselves
}

// StartSentinels starts all of them and waits until they know each other. extra are further redis-server
// arguments of the primary and its replicas. The Sentinels look several times a second, so that a failover
// takes two or three.
func StartSentinels(tb testing.TB, replicas int, extra ...string) *Sentinels {
	tb.Helper()
	where := needPlace(tb)
	s := &Sentinels{Primary: startServer(tb, where, standalone, extra)}
	s.Front = StartProxy(tb, s.Primary.Addr)
	host, port, _ := net.SplitHostPort(s.Front.Addr)
	for range replicas {
		replica := startServer(tb, where, standalone, append([]string{"--replicaof", host + " " + port}, extra...))
		s.Replicas = append(s.Replicas, replica)
	}
	for _, replica := range s.Replicas {
		kit.Check(tb, within(startDeadline, replica.linked))
	}
	for range 3 {
		watcher := startServer(tb, where, sentinel, nil)
		s.Watchers = append(s.Watchers, watcher)
		// A Sentinel undoes a failover that it has not heard of for four publishing periods, so the period
		// must not be too short. It does not promote a replica if the last INFO is older than five ping periods,
		// and fetches INFO only once a second while the link to the primary is down.
		watcher.do(tb, "SENTINEL", "DEBUG", "PING-PERIOD", 400, "INFO-PERIOD", 100, "PUBLISH-PERIOD", 500)
		watcher.do(tb, "SENTINEL", "MONITOR", "main", host, port, 2)
		watcher.do(
			tb,
			"SENTINEL",
			"SET",
			"main",
			"down-after-milliseconds",
			1000,
			"failover-timeout",
			failoverTimeout.Milliseconds(),
		)
	}
	for _, watcher := range s.Watchers {
		err := within(startDeadline, func() error {
			main, err := watcher.try("SENTINEL", "MASTER", "main")
			if err != nil {
				return err
			}
			fields := main.(map[any]any)
			if fields["num-other-sentinels"] != "2" || fields["num-slaves"] != fmt.Sprint(replicas) ||
				fields["flags"] != "master" {
				return fmt.Errorf("sentinel %s is not ready: %v", watcher.Addr, fields)
			}
			return nil
		})
		kit.Check(tb, err)
	}
	return s
}

// URL returns the REDIS_URL of the Sentinels.
func (s *Sentinels) URL() string {
	url := "redis://" + s.Watchers[0].Addr + "/0?master_name=main"
	for _, watcher := range s.Watchers[1:] {
		url += "&addr=" + watcher.Addr
	}
	return url
}

// Failover makes the Sentinels promote a replica while the primary is well.
func (s *Sentinels) Failover(tb testing.TB) {
	tb.Helper()
	err := within(startDeadline, func() error {
		_, err := s.Watchers[0].try("SENTINEL", "FAILOVER", "main") // NOGOODSLAVE until it has heard of one again
		return err
	})
	if err != nil {
		tb.Fatalf("failover: %v", err)
	}
	s.asked = true
}

// askAgain requests another failover. The Sentinels never retry a requested failover that timed out, because
// the primary is well. While one is in progress they refuse (INPROG), which is no error here.
func (s *Sentinels) askAgain() {
	_, _ = s.Watchers[0].try("SENTINEL", "FAILOVER", "main")
}

// Promoted waits until a replica is the primary, for itself and for all Sentinels.
func (s *Sentinels) Promoted(tb testing.TB) *Server {
	tb.Helper()
	var promoted *Server
	asked := time.Now()
	err := within(promoteDeadline, func() error {
		var addr string
		for _, watcher := range s.Watchers {
			answer, err := watcher.try("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")
			if err != nil {
				return err
			}
			pair := answer.([]any)
			next := net.JoinHostPort(pair[0].(string), pair[1].(string))
			if next == s.Front.Addr && s.asked && time.Since(asked) > failoverTimeout {
				asked = time.Now()
				s.askAgain()
			}
			if next == s.Front.Addr || (addr != "" && next != addr) {
				return fmt.Errorf("sentinel %s still names %s", watcher.Addr, next)
			}
			addr = next
		}
		for _, replica := range s.Replicas {
			if replica.Addr == addr {
				promoted = replica
				return replica.is("master")
			}
		}
		return fmt.Errorf("the Sentinels name %s, which is none of the replicas", addr)
	})
	if err != nil {
		for _, watcher := range s.Watchers {
			tb.Logf("sentinel %s: %s", watcher.Addr, watcher.place.lastWords(watcher.dir))
		}
		tb.Fatal(err)
	}
	return promoted
}

// Settle prepares failovers back and forth: it makes the first primary announce the Front's address also as a
// replica and after a restart. Otherwise the Sentinels would take it for two servers, and make it a replica
// of itself.
func (s *Sentinels) Settle(tb testing.TB) {
	tb.Helper()
	host, port, err := net.SplitHostPort(s.Front.Addr)
	kit.Check(tb, err)
	for name, value := range map[string]string{"replica-announce-ip": host, "replica-announce-port": port} {
		s.Primary.do(tb, "CONFIG", "SET", name, value)
		s.Primary.extra = append(slices.Clone(s.Primary.extra), "--"+name, value)
	}
}

// Current returns the primary that all Sentinels name. It waits until all other servers are its replicas and
// have caught up with its offset at the first check.
func (s *Sentinels) Current(tb testing.TB) *Server {
	tb.Helper()
	var current *Server
	from := 0
	err := within(promoteDeadline, func() error {
		named, err := s.named()
		if err != nil {
			return err
		}
		info, err := named.try("INFO", "replication")
		if err != nil {
			return err
		}
		if named != current {
			current = named
			from, _ = strconv.Atoi(field(info.(string), "master_repl_offset"))
		}
		have := 0
		for _, replica := range offsets.FindAllStringSubmatch(info.(string), -1) {
			if offset, _ := strconv.Atoi(replica[1]); offset >= from {
				have++
			}
		}
		if have != len(s.Replicas) {
			return fmt.Errorf(
				"%d replicas of %s have all up to %d, expected %d",
				have,
				current.Addr,
				from,
				len(s.Replicas),
			)
		}
		return nil
	})
	kit.Check(tb, err)
	return current
}

// offsets matches the replicas' offsets in INFO.
var offsets = regexp.MustCompile(`state=online,offset=(\d+),`)

// Replaced waits until all Sentinels name another primary than old, which it is, and returns it.
func (s *Sentinels) Replaced(tb testing.TB, old *Server) *Server {
	tb.Helper()
	var next *Server
	asked := time.Now()
	err := within(promoteDeadline, func() (err error) {
		if next, err = s.named(); err == nil && next == old {
			err = fmt.Errorf("the Sentinels still name %s", old.Addr)
		}
		if err != nil && s.asked && time.Since(asked) > failoverTimeout {
			asked = time.Now()
			s.askAgain()
		}
		return err
	})
	kit.Check(tb, err)
	s.asked = false
	return next
}

// named is the primary that all Sentinels name, if it says so itself.
func (s *Sentinels) named() (*Server, error) {
	var named *Server
	for _, watcher := range s.Watchers {
		answer, err := watcher.try("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")
		if err != nil {
			return nil, err
		}
		pair := answer.([]any)
		server := s.at(net.JoinHostPort(pair[0].(string), pair[1].(string)))
		if server == nil || named != nil && server != named {
			return nil, fmt.Errorf("sentinel %s names %v, unlike the others", watcher.Addr, pair)
		}
		named = server
	}
	return named, named.is("master")
}

// at returns the server that the Sentinels know by an address, or nil.
func (s *Sentinels) at(addr string) *Server {
	if addr == s.Front.Addr {
		return s.Primary
	}
	for _, replica := range s.Replicas {
		if replica.Addr == addr {
			return replica
		}
	}
	return nil
}

// do sends one command to the server by itself.
func (s *Server) do(tb testing.TB, arguments ...any) any {
	tb.Helper()
	reply, err := s.try(arguments...)
	if err != nil {
		tb.Fatalf("%v on %s: %v", arguments, s.Addr, err)
	}
	return reply
}

func (s *Server) try(arguments ...any) (any, error) {
	client := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	defer func() { _ = client.Close() }()
	return client.Do(context.Background(), arguments...).Result()
}

// is returns an error unless the server's role is as wanted, "master" or "slave". A server whose role changes
// hangs up on its clients.
func (s *Server) is(wanted string) error {
	info, err := s.try("INFO", "replication")
	if err != nil {
		return err
	}
	if role := field(info.(string), "role"); role != wanted {
		return fmt.Errorf("%s is a %s, expected a %s", s.Addr, role, wanted)
	}
	return nil
}

// linked returns an error until the replica has its primary's data.
func (s *Server) linked() error {
	info, err := s.try("INFO", "replication")
	if err == nil && !strings.Contains(info.(string), "master_link_status:up") {
		err = fmt.Errorf("replica %s has no link to its primary", s.Addr)
	}
	return err
}
