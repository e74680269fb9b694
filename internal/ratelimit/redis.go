package ratelimit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience sets the timeouts and the concurrency of a client.
type patience struct {
	connect time.Duration // bounds a TCP connection; a TLS handshake may take twice that
	call    time.Duration
	retries int           // by go-redis, within one call; -1 disables them. Every script may be repeated.
	calls   int           // concurrent ones. Zero leaves the pool to go-redis and the URL.
	pool    time.Duration // bounds the wait for a connection, if calls is set
}

// roundTrip bounds a round trip to Redis of a worker: a TCP connection, or a call, as a script takes about a
// millisecond. Another continent is a quarter of a second away. A healer must notice a new primary within
// healQuarantine, even while it tries to connect to the old one.
const roundTrip = 500 * time.Millisecond

// A command waits longer than a worker: if its call fails, the command fails, whereas a worker repeats the
// event later.
var (
	commandPatience = patience{connect: 2 * time.Second, call: 5 * time.Second, retries: 1}
	healerPatience  = patience{connect: roundTrip, call: roundTrip, retries: -1}
)

// workerPatience makes room for all calls of a worker. go-redis sizes pools by the number of processors,
// although calls wait for the network; the worker gets a connection for each concurrent call. A long wait for
// a connection does not mean that Redis is down.
func workerPatience(posts int) patience {
	return patience{
		connect: roundTrip, call: roundTrip, retries: 1,
		calls: posts + callsBesidePosts, pool: 30 * time.Second,
	}
}

// dial bounds the making of a connection to one server.
func (p patience) dial() time.Duration { return 3 * p.connect }

// dialThroughSentinels bounds the making of a connection whose server a Sentinel names. If a Sentinel fails,
// go-redis tries it again before it turns to the others. Then it connects to one, makes up to four calls
// there, and connects to the server.
func (p patience) dialThroughSentinels() time.Duration { return 4*p.connect + 2*p.dial() }

// callsBesidePosts reserves connections for decisions, refunds, counts, mutes, the digest and readiness
// checks.
const callsBesidePosts = 16

const (
	dialAttempts = 1 // per attempt of a call. The default of five would take ten seconds.
	checkedIdle  = 5 * time.Second

	// A Cluster has replaced a dead server within seconds. go-redis looks up the servers after a failed
	// connection only if the last lookup is older than this, a minute by default.
	clusterLookups = time.Second

	// ownPool lets pipelines use the pool of all calls, which sizePool has made large enough. With a pool of
	// their own a worker could have more connections than docs/operating.md says.
	ownPool = -1
)

// sizePool makes room for all concurrent calls. The URL can only enlarge the pool: in a smaller one a post
// could wait for a connection until its permit (see Begin) has expired.
func (p patience) sizePool(size, active *int, wait *time.Duration) {
	if p.calls == 0 {
		return
	}
	*size, *wait = max(*size, p.calls), p.pool
	if *active > 0 {
		*active = max(*active, *size)
	}
}

// ErrInvalidURL is the error for every invalid Redis URL. It quotes no part of the URL, which may contain a
// password.
var ErrInvalidURL = errors.New(
	"expected redis://[user:password@]host:port/db, rediss:// for TLS, unix:///path?db=0 for a socket, " +
		"addr= parameters for Cluster, or master_name= for Sentinel; " +
		"then user:password@ is for the Sentinels, and username= and password= are for the server")

// Open returns a client for commands; workers use OpenGuarded. The URL names one server, a Cluster by addr
// parameters, or Sentinels by master_name. tlsConfig must be nil unless the URL begins with rediss://. Open
// does not connect. Errors quote no part of the URL.
func Open(rawURL string, tlsConfig *tls.Config) (redis.UniversalClient, error) {
	return open(rawURL, tlsConfig, commandPatience, nil)
}

type connectionCheck = func(context.Context, *redis.Conn) error

// open accepts a nil check.
func open(
	rawURL string, tlsConfig *tls.Config, p patience, check connectionCheck,
) (client redis.UniversalClient, err error) {
	defer func() {
		// go-redis panics on exclusive parameters, such as master_name with route_by_latency.
		if recover() != nil {
			client, err = nil, ErrInvalidURL
		}
	}()
	parsed, err := url.Parse(rawURL)
	if err != nil || !namesServer(parsed) {
		return nil, ErrInvalidURL
	}
	if tlsConfig != nil && parsed.Scheme != "rediss" {
		return nil, errors.New("TLS files are set, expected a rediss:// URL")
	}
	query := parsed.Query()
	// The three option types share no interface. All but Dialer is the same in each.
	switch {
	case query.Has("master_name"):
		options, err := redis.ParseFailoverURL(rawURL)
		if err != nil {
			return nil, ErrInvalidURL
		}
		options.TLSConfig = mergeTLS(options.TLSConfig, tlsConfig)
		options.DialTimeout = p.dialThroughSentinels()
		options.ReadTimeout, options.WriteTimeout = p.call, p.call
		options.DialerRetries, options.MaxRetries = dialAttempts, p.retries
		options.PipelinePoolSize = ownPool
		options.ContextTimeoutEnabled = true
		options.Dialer = p.dialer(each(options.TLSConfig, parsed))
		p.sizePool(&options.PoolSize, &options.MaxActiveConns, &options.PoolTimeout)
		options.OnConnect, options.ConnMaxIdleTime = check, idleTime(check, options.ConnMaxIdleTime)
		return advised(redis.NewFailoverClient(options), false), nil
	case query.Has("addr"):
		options, err := redis.ParseClusterURL(rawURL)
		if err != nil {
			return nil, ErrInvalidURL
		}
		options.TLSConfig = mergeTLS(options.TLSConfig, tlsConfig)
		options.DialTimeout, options.ReadTimeout, options.WriteTimeout = p.dial(), p.call, p.call
		options.DialerRetries, options.MaxRetries = dialAttempts, p.retries
		options.PipelinePoolSize = ownPool
		options.ContextTimeoutEnabled = true
		options.ClusterStateReloadInterval = clusterLookups
		options.Dialer = p.dialer(each(options.TLSConfig, parsed))
		p.sizePool(&options.PoolSize, &options.MaxActiveConns, &options.PoolTimeout)
		options.OnConnect, options.ConnMaxIdleTime = check, idleTime(check, options.ConnMaxIdleTime)
		return advised(redis.NewClusterClient(options), false), nil
	default:
		options, err := redis.ParseURL(rawURL)
		if err != nil {
			return nil, ErrInvalidURL
		}
		options.TLSConfig = mergeTLS(options.TLSConfig, tlsConfig)
		options.DialTimeout, options.ReadTimeout, options.WriteTimeout = p.dial(), p.call, p.call
		options.DialerRetries, options.MaxRetries = dialAttempts, p.retries
		options.PipelinePoolSize = ownPool
		options.ContextTimeoutEnabled = true
		options.Dialer = p.dialer(func(string) *tls.Config { return options.TLSConfig })
		p.sizePool(&options.PoolSize, &options.MaxActiveConns, &options.PoolTimeout)
		options.OnConnect, options.ConnMaxIdleTime = check, idleTime(check, options.ConnMaxIdleTime)
		return advised(redis.NewClient(options), true), nil
	}
}

func advised(client redis.UniversalClient, single bool) redis.UniversalClient {
	client.AddHook(adviser{single})
	return client
}

// idleTime renews checked connections soon: while one was idle, its server may have become a replica and a
// primary again.
func idleTime(check connectionCheck, configured time.Duration) time.Duration {
	if check == nil {
		return configured
	}
	return checkedIdle
}

func namesServer(parsed *url.URL) bool {
	if parsed.Scheme == "unix" {
		return parsed.Host == "" && strings.HasPrefix(parsed.Path, "/")
	}
	return parsed.Host != "" && isPort(parsed.Port())
}

// isPort accepts an empty port, for which go-redis has a default.
func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil
}

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

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer returns a dialer with separate timeouts for the TCP connection, where a silent host is noticed, and
// for the TLS handshake, which takes a distant host longer. The configuration of a server without TLS is nil.
func (p patience) dialer(configFor func(addr string) *tls.Config) dialer {
	dialTCP := redis.NewDialer(&redis.Options{DialTimeout: p.connect})
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		connection, err := dialTCP(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		config := configFor(addr)
		if config == nil {
			return connection, nil
		}
		ctx, cancel := context.WithTimeout(ctx, 2*p.connect)
		defer cancel()
		secure := tls.Client(connection, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = connection.Close()
			return nil, fmt.Errorf("%s: %w", addr, err) // an error of TLS does not name the server
		}
		return secure, nil
	}
}

// each returns the TLS configuration of each server of a Cluster, and of Sentinels and the servers that they
// announce. go-redis would verify all of them by the first host of the URL.
func each(config *tls.Config, parsed *url.URL) func(addr string) *tls.Config {
	hosts := hostsOf(parsed)
	return func(addr string) *tls.Config {
		if config == nil {
			return nil
		}
		return verifyEach(config, addr, hosts)
	}
}

// hostsOf returns the hosts in a URL, in order.
func hostsOf(parsed *url.URL) []string {
	hosts := []string{parsed.Hostname()}
	for _, addr := range parsed.Query()["addr"] {
		if host, _, err := net.SplitHostPort(addr); err == nil {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// verifyEach returns the configuration for one server. Its certificate needs a trusted authority, and must be
// valid for the dialled address or for a host of the URL. The latter admits servers that share a certificate,
// and servers that announce IP addresses. It adds no trust: a server that proves to be a host of the URL
// could announce itself as the server with the keys.
func verifyEach(config *tls.Config, addr string, hosts []string) *tls.Config {
	own, _, err := net.SplitHostPort(addr)
	if err != nil {
		own = addr
	}
	server := config.Clone()
	if net.ParseIP(own) == nil {
		server.ServerName = own // otherwise the name of the URL stays: TLS cannot send an address
	}
	if config.InsecureSkipVerify { // skip_verify in the URL
		return server
	}
	// crypto/tls verifies a single name. VerifyConnection runs in each handshake instead.
	server.InsecureSkipVerify = true
	server.VerifyConnection = func(state tls.ConnectionState) error {
		return verify(state.PeerCertificates, config.RootCAs, append([]string{own}, hosts...))
	}
	return server
}

// verify verifies a chain for any of several names. The error is about the first name.
func verify(chain []*x509.Certificate, roots *x509.CertPool, names []string) error {
	options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, certificate := range chain[1:] {
		options.Intermediates.AddCert(certificate)
	}
	_, err := chain[0].Verify(options)
	if err == nil {
		if slices.ContainsFunc(names, func(name string) bool { return chain[0].VerifyHostname(name) == nil }) {
			return nil
		}
		err = chain[0].VerifyHostname(names[0])
	}
	return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
}

// damagedKey is the error about a key of an unexpected type. notifier does not remove the key, because
// another program may use it.
type damagedKey struct{ Key string }

func (d damagedKey) Error() string {
	return fmt.Sprintf(
		"the key %q is of another type than notifier stores there: remove it, or choose another REDIS_NAMESPACE",
		d.Key)
}

// nameDamagedKey adds the name of the damaged key to a type error of Redis. It asks for the length of each
// key, because that fails only for a key of the wrong type and needs no permission that the scripts do not
// need.
func (l *Limiter) nameDamagedKey(ctx context.Context, err error, keyNames []string) error {
	if !isWrongType(err) {
		return err
	}
	pipe := l.redis.Pipeline()
	lengths := make([]*redis.IntCmd, len(keyNames))
	for i, key := range keyNames {
		if l.keys.isRedisHash(key) {
			lengths[i] = pipe.HLen(ctx, key)
		} else {
			lengths[i] = pipe.ZCard(ctx, key)
		}
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, length := range lengths {
		if isWrongType(length.Err()) {
			return fmt.Errorf("%w: %w", damagedKey{keyNames[i]}, err)
		}
	}
	return err
}

func isWrongType(err error) bool { return err != nil && strings.Contains(err.Error(), "WRONGTYPE") }
