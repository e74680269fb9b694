//go:build !production

package devstack

import (
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Redis is the embedded store: not Redis, but it runs the same scripts and decides the same.
type Redis struct {
	store *miniredis.Miniredis
	stop  chan struct{}
	ended chan struct{}
}

// StartRedis starts an empty store on addr (host:port; port 0, or a port that is taken: a free one).
func StartRedis(addr string) (*Redis, error) {
	listener, err := listen(addr)
	if err != nil {
		return nil, fmt.Errorf("embedded Redis: %w", err)
	}
	addr = listener.Addr().String()
	_ = listener.Close() // the store opens its own
	r := &Redis{store: miniredis.NewMiniRedis(), stop: make(chan struct{}), ended: make(chan struct{})}
	if err := r.store.StartAddr(addr); err != nil {
		return nil, fmt.Errorf("embedded Redis: %w", err)
	}
	go r.expire()
	return r, nil
}

// expire lets keys expire: the store's clock moves by itself, its expiry only when it is told.
func (r *Redis) expire() {
	defer close(r.ended)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-ticker.C:
			r.store.FastForward(time.Second)
		}
	}
}

// Addr is the host:port that it listens on.
func (r *Redis) Addr() string { return r.store.Addr() }

// URL is what REDIS_URL would be.
func (r *Redis) URL() string { return "redis://" + r.Addr() + "/0" }

// Close ends the store; what it held is gone.
func (r *Redis) Close() error {
	close(r.stop)
	<-r.ended
	r.store.Close()
	return nil
}
