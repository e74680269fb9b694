package ratelimit_test

import (
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// onOwner is the node that holds all keys of namespace "n"; no other holds any.
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

func TestClusterOfThreeNodes(t *testing.T) {
	t.Parallel() // it takes some seconds until it is up
	cluster := redistest.StartCluster(t, 3, "--appendonly", "yes", "--cluster-node-timeout", "3000")

	t.Run("works, with all keys on one node", func(t *testing.T) {
		works(t, kit.OpenRedis(t, cluster.URL()))
		if got := onOwner(t, cluster).DBSize(t.Context()).Val(); got != 6 {
			t.Errorf("%d keys on the slot's node, expected 6", got)
		}
	})
	onOwner(t, cluster).FlushAll(t.Context())

	// A slot moves key by key, and a script runs only where all of its keys are: until the last one has moved
	// there is no decision, and no wrong one.
	t.Run("a slot moves under load", func(t *testing.T) {
		traffic := startTraffic(t, cluster.URL(), 3)
		traffic.more(5)
		from, to := cluster.Owner(t, "{n}"), cluster.Other(t, "{n}")
		step := 0
		cluster.MoveSlot(t, "{n}", to, func(string) {
			if step++; step <= 4 { // most of the keys are those of the categories that are new in every round
				traffic.more(1)
			}
		})
		traffic.more(10)
		traffic.end(onOwner(t, cluster))
		if owner := cluster.Owner(t, "{n}"); owner != to || owner == from {
			t.Errorf("the slot is on %s, expected %s", owner.Addr, to.Addr)
		}
		if traffic.seen["TRYAGAIN"] == 0 {
			t.Errorf("errors %v: nobody asked while the keys were on two nodes", traffic.seen)
		}
	})
	onOwner(t, cluster).FlushAll(t.Context())

	t.Run("a killed master is waited for", func(t *testing.T) { waitsForAKilledMaster(t, cluster) })
	onOwner(t, cluster).FlushAll(t.Context())

	// The replica takes over with all that its master has admitted, and knows no script.
	t.Run("a replica takes over under load", func(t *testing.T) {
		replica := cluster.AddReplica(t, cluster.Owner(t, "{n}"))
		traffic := startTraffic(t, cluster.URL(), 3)
		traffic.more(10)
		cluster.Promote(t, replica)
		traffic.more(10)
		if owner := cluster.Owner(t, "{n}"); owner != replica {
			t.Errorf("the slot is on %s, expected %s", owner.Addr, replica.Addr)
		}
		traffic.end(onServer(t, replica))
	})
}

// waitsForAKilledMaster: while the master of the slot is dead nothing is decided; started again, it goes on
// with what it has on disk.
func waitsForAKilledMaster(t *testing.T, cluster *redistest.Cluster) {
	t.Helper()
	s := onOwner(t, cluster)
	limiter := caller{t: t}
	var err error
	if limiter.Limiter, err = ratelimit.New(kit.OpenRedis(t, cluster.URL()), "n", kit.Rules("100/30m", "2/30m", ""), day); err != nil {
		t.Fatal(err)
	}
	e, f := event("e", "a"), event("f", "a")
	limiter.admits(e, f)
	limiter.sent(f)
	s.server.Stop(t)
	started := time.Now()
	for range 3 {
		if decisions, err := limiter.Admit(t.Context(), []ratelimit.Request{e, f, event("g", "a")}); err == nil || decisions != nil {
			t.Errorf("with the master unavailable: %v, %v", decisions, err)
		}
	}
	if err := limiter.Sent(t.Context(), e); err == nil {
		t.Error("recorded as sent with the master unavailable")
	}
	if refunded, err := limiter.Refund(t.Context(), e, ""); err == nil || refunded {
		t.Errorf("refunded with the master unavailable: %t, %v", refunded, err)
	}
	t.Logf("five calls failed in %s", time.Since(started).Round(time.Millisecond))
	s.server.Restart(t)
	kit.EventuallyNil(t, func() error { return limiter.Ready(t.Context()) })
	limiter.admits(e)
	limiter.duplicates(f)
	limiter.want(ratelimit.Category, event("g", "a"))
}
