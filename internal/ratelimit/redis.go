package ratelimit

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// A call that takes longer than this has failed: the script itself takes about a millisecond. One retry is safe,
// because every script may be repeated.
const (
	dialTimeout = 2 * time.Second
	dialTries   = 1 // for each try of the call; go-redis's five would be ten seconds of silence
	callTimeout = 500 * time.Millisecond
	callRetries = 1
)

// ErrURL is what is wrong with a Redis URL whose parts must not be shown, because one of them is a password.
var ErrURL = errors.New("expected redis://[user:password@]host:port/db, rediss:// for TLS, addr= parameters for Cluster or master_name= for Sentinel")

// Open makes a client for a URL of one of go-redis's forms: one server; with addr parameters a Cluster; with
// master_name Sentinels. tlsConfig may be nil; it is used where the URL asks for TLS (rediss://). Nothing is connected
// yet. No error shows any part of the URL.
func Open(rawURL string, tlsConfig *tls.Config) (client redis.UniversalClient, err error) {
	defer func() {
		// go-redis panics on parameters that do not go together, such as master_name and route_by_latency.
		if recover() != nil {
			client, err = nil, ErrURL
		}
	}()
	parsed, err := url.Parse(rawURL)
	if err != nil || parsed.Host == "" || !isPort(parsed.Port()) {
		return nil, ErrURL
	}
	if tlsConfig != nil && parsed.Scheme != "rediss" {
		return nil, fmt.Errorf("TLS files are set, %w", errNotTLS)
	}
	query := parsed.Query()
	switch {
	case query.Has("master_name"):
		options, err := redis.ParseFailoverURL(rawURL)
		if err != nil {
			return nil, ErrURL
		}
		options.TLSConfig = mergeTLS(options.TLSConfig, tlsConfig)
		options.DialTimeout, options.ReadTimeout, options.WriteTimeout = dialTimeout, callTimeout, callTimeout
		options.DialerRetries, options.MaxRetries, options.ContextTimeoutEnabled = dialTries, callRetries, true
		return redis.NewFailoverClient(options), nil
	case query.Has("addr"):
		options, err := redis.ParseClusterURL(rawURL)
		if err != nil {
			return nil, ErrURL
		}
		options.TLSConfig = mergeTLS(options.TLSConfig, tlsConfig)
		options.DialTimeout, options.ReadTimeout, options.WriteTimeout = dialTimeout, callTimeout, callTimeout
		options.DialerRetries, options.MaxRetries, options.ContextTimeoutEnabled = dialTries, callRetries, true
		return redis.NewClusterClient(options), nil
	default:
		options, err := redis.ParseURL(rawURL)
		if err != nil {
			return nil, ErrURL
		}
		options.TLSConfig = mergeTLS(options.TLSConfig, tlsConfig)
		options.DialTimeout, options.ReadTimeout, options.WriteTimeout = dialTimeout, callTimeout, callTimeout
		options.DialerRetries, options.MaxRetries, options.ContextTimeoutEnabled = dialTries, callRetries, true
		return redis.NewClient(options), nil
	}
}

// isPort takes no port too: go-redis has a default.
func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil
}

var errNotTLS = errors.New("expected a rediss:// URL beside them")

// mergeTLS puts our certificates into what go-redis made of the URL (the server's name above all).
func mergeTLS(fromURL, ours *tls.Config) *tls.Config {
	if fromURL == nil || ours == nil {
		return fromURL
	}
	merged := fromURL.Clone()
	merged.RootCAs, merged.Certificates = ours.RootCAs, ours.Certificates
	return merged
}
