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

// patience is how long a call may take.
type patience struct {
	dial, call time.Duration
	retries    int // one is safe, because every script may be repeated; -1: none
}

// A script takes about a millisecond. So for a worker a call that takes half a second has failed: it asks
// again for as long as it must. A person waits longer, because there is no better answer. A healer has to
// notice a new primary within healQuarantine, also while it tries to connect to the old one.
var (
	workersPatience = patience{dial: 2 * time.Second, call: 500 * time.Millisecond, retries: 1}
	peoplesPatience = patience{dial: 2 * time.Second, call: 5 * time.Second, retries: 1}
	healersPatience = patience{dial: 500 * time.Millisecond, call: 500 * time.Millisecond, retries: -1}
)

const (
	dialAttempts = 1 // for each attempt of the call; go-redis's five would take ten seconds
	checkedIdle  = 5 * time.Second
)

// ErrInvalidURL is the error for every invalid Redis URL. It shows no part of the URL, because one of them
// may be a password.
var ErrInvalidURL = errors.New(
	"expected redis://[user:password@]host:port/db, rediss:// for TLS, " +
		"addr= parameters for Cluster or master_name= for Sentinel")

// Open returns a client for a URL in one of go-redis's forms: one server; with addr parameters a Cluster;
// with master_name Sentinels. tlsConfig may be nil; without a URL that asks for TLS (rediss://) it is an
// error. Open does not connect. No error shows any part of the URL. It is for commands, whose users wait for
// an answer; a worker has OpenGuarded.
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

// mergeTLS adds our certificates to the configuration that go-redis derived from the URL, which has the
// server's name.
func mergeTLS(fromURL, ours *tls.Config) *tls.Config {
	if fromURL == nil || ours == nil {
		return fromURL
	}
	merged := fromURL.Clone()
	merged.RootCAs, merged.Certificates = ours.RootCAs, ours.Certificates
	return merged
}
