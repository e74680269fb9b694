package ratelimit

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// ErrHealing is the error of a call while replicas put back what they remember into a store that may have
// forgotten it. Ask again. It wraps nothing: go-redis takes the wrapping off what a new connection's check
// returns.
var ErrHealing = errors.New(
	"redis: this store may have forgotten admissions: replicas are putting back what they remember")

var errReplica = errors.New(
	"redis: connected to a replica, which takes no writes; the primary is looked up again")

// Guard checks each connection of a client when it is made: nothing is decided on a store of another
// generation before it is healed. Until a Healer uses it, it lets everything pass.
type Guard struct {
	healer atomic.Pointer[Healer]
	open   func() (redis.UniversalClient, error) // another client of the same servers, without a guard
}

// OpenGuarded is Open for a worker. Its calls fail after half a second, and new connections pass the Guard.
// posts bounds the worker's concurrent posts; the pool has a connection for each of them.
func OpenGuarded(rawURL string, tlsConfig *tls.Config, posts int) (redis.UniversalClient, *Guard, error) {
	guard := &Guard{open: func() (redis.UniversalClient, error) {
		return open(rawURL, tlsConfig, healersPatience, nil)
	}}
	client, err := open(rawURL, tlsConfig, workersPatience(posts), guard.check)
	if err != nil {
		return nil, nil, err
	}
	return client, guard, nil
}

// check is what go-redis calls on a new connection.
func (g *Guard) check(ctx context.Context, connection *redis.Conn) error {
	if h := g.healer.Load(); h != nil {
		return h.check(ctx, connection)
	}
	return nil
}

// server is what INFO replication says of the server at the other end of a connection.
type server struct {
	noStore    bool // a Sentinel: go-redis asks it through the same options
	replica    bool
	generation string // new whenever a primary starts, and at each promotion; empty: this store has none
}

// errNoInfo is why nothing is known about a server: the user may not ask.
var errNoInfo = errors.New("the user may not run INFO")

// askServer asks on a connection of its own. The embedded store has no such section of INFO.
func askServer(ctx context.Context, connection redis.Cmdable) (server, error) {
	info, err := connection.Info(ctx, "replication").Result()
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "NOPERM"):
		return server{}, errNoInfo
	case strings.Contains(err.Error(), "not supported"):
		return server{}, nil
	default:
		return server{}, err
	}
	s := server{noStore: true}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "role":
			s.noStore, s.replica = false, value == "slave"
		case "master_replid":
			s.generation = value
		}
	}
	return s, nil
}

// MarkHealed notes in a new store that it has forgotten nothing. It is for those who have just created the
// store: a worker that finds one without a token waits whether other workers put something back.
func MarkHealed(ctx context.Context, client *redis.Client, namespace string) error {
	names, err := newKeys(namespace)
	if err != nil {
		return err
	}
	found, err := askServer(ctx, client)
	if err != nil || found.generation == "" {
		return err
	}
	return quarantineScript.Run(ctx, client, []string{names.meta()}, found.generation, "0",
		micros(healMost)).Err()
}
