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

// Timeouts and attempts of a call. A script itself takes about a millisecond, so for a worker a call that takes
// longer than callTimeout has failed: it asks again as long as it must. A person waits for askTimeout, because
// there is no better answer. One retry is safe, because every script may be repeated.
const (
	dialTimeout  = 2 * time.Second
	dialAttempts = 1 // for each attempt of the call; go-redis's five would take ten seconds
	callTimeout  = 500 * time.Millisecond
	askTimeout   = 5 * time.Second
	callRetries  = 1
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
	return open(rawURL, tlsConfig, askTimeout, nil)
}

// open is Open with another timeout of a call; check, if there is one, is called on each connection when it is
// made.
func open(rawURL string, tlsConfig *tls.Config, timeout time.Duration,
	check func(context.Context, *redis.Conn) error) (client redis.UniversalClient, err error) {
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
		options.DialTimeout, options.ReadTimeout, options.WriteTimeout = dialTimeout, timeout, timeout
		options.DialerRetries, options.MaxRetries = dialAttempts, callRetries
		options.ContextTimeoutEnabled = true
		options.OnConnect, options.ConnMaxIdleTime = check, idleTime(check, options.ConnMaxIdleTime)
		return redis.NewFailoverClient(options), nil
	case query.Has("addr"):
		options, err := redis.ParseClusterURL(rawURL)
		if err != nil {
			return nil, ErrInvalidURL
		}
		options.TLSConfig = mergeTLS(options.TLSConfig, tlsConfig)
		options.DialTimeout, options.ReadTimeout, options.WriteTimeout = dialTimeout, timeout, timeout
		options.DialerRetries, options.MaxRetries = dialAttempts, callRetries
		options.ContextTimeoutEnabled = true
		options.OnConnect, options.ConnMaxIdleTime = check, idleTime(check, options.ConnMaxIdleTime)
		return redis.NewClusterClient(options), nil
	default:
		options, err := redis.ParseURL(rawURL)
		if err != nil {
			return nil, ErrInvalidURL
		}
		options.TLSConfig = mergeTLS(options.TLSConfig, tlsConfig)
		options.DialTimeout, options.ReadTimeout, options.WriteTimeout = dialTimeout, timeout, timeout
		options.DialerRetries, options.MaxRetries = dialAttempts, callRetries
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
