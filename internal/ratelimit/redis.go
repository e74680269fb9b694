package ratelimit

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience bounds the waits of a client, and how much it does at once.
type patience struct {
	dial, call time.Duration
	retries    int           // one is safe, because every script may be repeated; -1: none
	calls      int           // at the same time; zero leaves the pool to go-redis and the URL
	pool       time.Duration // the wait for a connection; zero leaves it to go-redis and the URL
}

// A command waits longer than a worker, because a person has no better reply. A healer must notice a new
// primary within healQuarantine, also while it tries to connect to the old one.
var (
	peoplesPatience = patience{dial: 2 * time.Second, call: 5 * time.Second, retries: 1}
	healersPatience = patience{dial: 500 * time.Millisecond, call: 500 * time.Millisecond, retries: -1}
)

// workersPatience fails a call after half a second, because a script takes about a millisecond and the worker
// retries for as long as it must. The pool has a connection for each concurrent call. go-redis sizes it by
// the number of processors, although the calls wait for the network. Waiting for a connection is no sign of
// an unavailable Redis, so it may take long.
func workersPatience(posts int) patience {
	return patience{
		dial: 2 * time.Second, call: 500 * time.Millisecond, retries: 1,
		calls: posts + callsBesidePosts, pool: 30 * time.Second,
	}
}

// callsBesidePosts leaves connections for a worker's other calls: decisions, refunds of dead events, counts,
// mutes, the digest, readiness checks and status requests.
const callsBesidePosts = 16

const (
	dialAttempts = 1 // for each attempt of the call; go-redis's five would take ten seconds
	checkedIdle  = 5 * time.Second
)

// sizePool makes room for all calls. Parameters of the URL may add connections. They cannot take any away:
// calls that queue for a connection get permits that are out of date.
func (p patience) sizePool(size, active *int, wait *time.Duration) {
	if p.calls == 0 {
		return
	}
	*size, *wait = max(*size, p.calls), p.pool
	if *active > 0 {
		*active = max(*active, *size)
	}
}

// ErrInvalidURL is the error for every invalid Redis URL. It shows no part of the URL, because one of them
// may be a password.
var ErrInvalidURL = errors.New(
	"expected redis://[user:password@]host:port/db, rediss:// for TLS, " +
		"addr= parameters for Cluster, or master_name= for Sentinel; " +
		"then user:password@ is for the Sentinels, and username= and password= are for the server")

// Open returns a client for a URL in one of go-redis's forms: one server; with addr parameters a Cluster;
// with master_name Sentinels. tlsConfig may be nil, and must be nil unless the URL begins with rediss://.
// Open does not connect. Errors show no part of the URL. Open is for commands; a worker has OpenGuarded.
func Open(rawURL string, tlsConfig *tls.Config) (redis.UniversalClient, error) {
	return open(rawURL, tlsConfig, peoplesPatience, nil)
}

// open is Open with another patience; check, if there is one, is called on each connection when it is made.
func open(
	rawURL string, tlsConfig *tls.Config, p patience, check func(context.Context, *redis.Conn) error,
) (client redis.UniversalClient, err error) {
	defer func() {
		// go-redis panics on parameters that exclude each other, such as master_name and route_by_latency.
		if recover() != nil {
			client, err = nil, ErrInvalidURL
		}
	}()
	parsed, err := url.Parse(rawURL)
	if err != nil || parsed.Host == "" || !isPort(parsed.Port()) {
		return nil, ErrInvalidURL
	}
	if tlsConfig != nil && parsed.Scheme != "rediss" {
		return nil, fmt.Errorf("TLS files are set, %w", errNotTLS)
	}
	query := parsed.Query()
	switch {
	case query.Has("master_name"):
		options, err := redis.ParseFailoverURL(rawURL)
		if err != nil {
			return nil, ErrInvalidURL
		}
		options.TLSConfig = mergeTLS(options.TLSConfig, tlsConfig)
		options.DialTimeout, options.ReadTimeout, options.WriteTimeout = p.dial, p.call, p.call
		options.DialerRetries, options.MaxRetries = dialAttempts, p.retries
		options.ContextTimeoutEnabled = true
		options.Dialer = p.dialEach(options.TLSConfig, parsed)
		p.sizePool(&options.PoolSize, &options.MaxActiveConns, &options.PoolTimeout)
		options.OnConnect, options.ConnMaxIdleTime = check, idleTime(check, options.ConnMaxIdleTime)
		return redis.NewFailoverClient(options), nil
	case query.Has("addr"):
		options, err := redis.ParseClusterURL(rawURL)
		if err != nil {
			return nil, ErrInvalidURL
		}
		options.TLSConfig = mergeTLS(options.TLSConfig, tlsConfig)
		options.DialTimeout, options.ReadTimeout, options.WriteTimeout = p.dial, p.call, p.call
		options.DialerRetries, options.MaxRetries = dialAttempts, p.retries
		options.ContextTimeoutEnabled = true
		options.Dialer = p.dialEach(options.TLSConfig, parsed)
		p.sizePool(&options.PoolSize, &options.MaxActiveConns, &options.PoolTimeout)
		options.OnConnect, options.ConnMaxIdleTime = check, idleTime(check, options.ConnMaxIdleTime)
		return redis.NewClusterClient(options), nil
	default:
		options, err := redis.ParseURL(rawURL)
		if err != nil {
			return nil, ErrInvalidURL
		}
		options.TLSConfig = mergeTLS(options.TLSConfig, tlsConfig)
		options.DialTimeout, options.ReadTimeout, options.WriteTimeout = p.dial, p.call, p.call
		options.DialerRetries, options.MaxRetries = dialAttempts, p.retries
		options.ContextTimeoutEnabled = true
		p.sizePool(&options.PoolSize, &options.MaxActiveConns, &options.PoolTimeout)
		options.OnConnect, options.ConnMaxIdleTime = check, idleTime(check, options.ConnMaxIdleTime)
		return redis.NewClient(options), nil
	}
}

// idleTime is how long a connection may be idle. A checked one has to be new soon: the server may have become
// a replica, and a primary again, without it.
func idleTime(check func(context.Context, *redis.Conn) error, configured time.Duration) time.Duration {
	if check == nil {
		return configured
	}
	return checkedIdle
}

// isPort reports whether text is a valid port. An empty one is: go-redis has a default.
func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil
}

var errNotTLS = errors.New("expected a rediss:// URL")
