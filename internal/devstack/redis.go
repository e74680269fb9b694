package devstack

import (
	"fmt"
	"net"

	"github.com/alicebob/miniredis/v2"

	"notifier/internal/devstack/embedded"
)

// Redis is the embedded store: it is not Redis, but runs the same scripts and decides the same.
type Redis struct {
	store *miniredis.Miniredis
}

// StartRedis starts an empty store on addr (host:port; port 0, or a port that is taken: a free one).
func StartRedis(addr string) (*Redis, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("embedded Redis: address %q, expected host:port", addr)
	}
	store := embedded.NewStore()
	if err = store.StartAddr(addr); err != nil {
		err = store.StartAddr(net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return nil, fmt.Errorf("embedded Redis: %w", err)
	}
	return &Redis{store: store}, nil
}

// Addr returns the host:port that the store listens on.
func (r *Redis) Addr() string { return r.store.Addr() }

// URL returns the value for REDIS_URL.
func (r *Redis) URL() string { return "redis://" + r.Addr() + "/0" }

// Close stops the store; its content is lost.
func (r *Redis) Close() error {
	r.store.Close()
	return nil
}
