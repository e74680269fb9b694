package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/internal/settings"
	"notifier/internal/term"
)

// allowedClockSkew is how far the clocks of Redis and of this host may differ without a warning.
const allowedClockSkew = time.Second

// checkRedis connects as a worker would, runs the script on nothing, and looks at what could make the server
// lose or refuse admissions. It leaves nothing there.
func checkRedis(ctx context.Context, s settings.Settings, r *report) {
	check := redisCheck{client: s.Store.Redis, namespace: s.Store.Namespace, report: r}
	limiter, err := ratelimit.New(s.Store.Redis, s.Store.Namespace, s.Store.Limits, s.Store.Dedupe)
	if err == nil {
		err = withTimeout(ctx, check.findNode)
	}
	if err == nil {
		err = withTimeout(ctx, limiter.Check)
	}
	if err != nil {
		advice := redisAdvice(err)
		if single, is := s.Store.Redis.(*redis.Client); is && single.Options().TLSConfig != nil &&
			advice == unreachable {
			advice += "; a server without TLS does not answer either: it needs redis:// in REDIS_URL"
		}
		r.fail(advice, "%v", err)
		return
	}
	check.server(ctx)
	check.anybody(ctx)
	asked := time.Now()
	if err := withTimeout(ctx, limiter.Ready); err != nil {
		r.fail(redisAdvice(err), "%v", err)
		return
	}
	r.ok("the script runs and answers in %s", time.Since(asked).Round(10*time.Microsecond))
	check.permissions(ctx)
	check.write(ctx)
	check.clock(ctx)
	check.memory()
	check.capacity(ctx, s.Store)
	check.persistence(ctx)
	check.replication(ctx)
}

// redisAdvice is what to do about an error of Redis.
func redisAdvice(err error) string {
	text := err.Error()
	for _, known := range []struct{ sign, advice string }{
		{"NOPERM", "give the user the ACL in docs/security.md"},
		{"can't run this command", "give the user the ACL in docs/security.md"}, // in a script
		{"WRONGPASS", "check the user and the password in REDIS_URL"},
		{"NOAUTH", "put the user and the password into REDIS_URL"},
		{"READONLY", "REDIS_URL names a replica: name the primary, or the Sentinels with master_name="},
		{`"INFO {`, "that is a NATS server: REDIS_URL needs the port of Redis"},
		{"NOREPLICAS", "it waits for replicas, see min-replicas-to-write"},
		{"MISCONF", "it cannot write to its disk: check its log"},
		{"OOM", "it is full: give it more memory, or set smaller limits; until then events are held"},
		{"DB index is out of range", "REDIS_URL names a database that is not there: most servers have 0 to 15"},
		{"SELECT is not allowed in cluster mode", "name no database in REDIS_URL: a Cluster has 0 alone"},
		{"LOADING", "it is still loading its data: wait"},
		{"certificate", "set REDIS_TLS_CA to the authority that signed the server's certificate"},
		{"connection refused", "check REDIS_URL, and whether the server is running"},
		{"no such host", "check REDIS_URL"},
		{"EOF", "a server with TLS needs rediss:// in REDIS_URL, one without redis://"},
		{"first record does not look like a TLS handshake", "a server without TLS needs redis:// in REDIS_URL"},
	} {
		if strings.Contains(text, known.sign) {
			return known.advice
		}
	}
	if errors.Is(err, context.DeadlineExceeded) || strings.Contains(text, "timeout") {
		return unreachable
	}
	return ""
}

const unreachable = "check REDIS_URL, and the network"

// redisCheck looks at the one server that keeps the keys.
type redisCheck struct {
	client    redis.UniversalClient
	node      *redis.Client // of a Cluster, the master of the keys' slot
	namespace string
	report    *report
	// what INFO reports; empty where the user may not ask or the server does not know
	info map[string]string
}

// withTimeout bounds one request.
func withTimeout(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	return ask(ctx)
}

// keyPrefix begins all keys of a namespace.
func keyPrefix(namespace string) string { return "{" + namespace + "}:" }

func (c *redisCheck) findNode(ctx context.Context) (err error) {
	switch client := c.client.(type) {
	case *redis.Client:
		c.node = client
	case *redis.ClusterClient:
		c.node, err = client.MasterForKey(ctx, keyPrefix(c.namespace))
	default:
		err = fmt.Errorf("unknown kind of client %T", client)
	}
	return err
}

// server reports what it is.
func (c *redisCheck) server(ctx context.Context) {
	c.info = map[string]string{}
	err := withTimeout(ctx, func(ctx context.Context) error { // after an error nothing is known
		text, err := c.node.Info(ctx).Result()
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			c.info[name] = value
		}
		return err
	})
	if err != nil && strings.Contains(err.Error(), "NOPERM") {
		c.report.warn(
			"give the user the ACL in docs/security.md",
			"the user may not run INFO: workers cannot see that it has failed over or came back empty, and put nothing back",
		)
	}
	version := "unknown version"
	switch {
	case c.info["valkey_version"] != "":
		version = "Valkey " + c.info["valkey_version"]
	case c.info["redis_version"] != "":
		version = "Redis " + c.info["redis_version"]
	}
	c.report.ok("%s, %s, %s", version, c.topology(), c.tls())
}

// anybody looks whether the server takes commands without a user and a password. With a certificate nothing
// is known: the server may require it.
func (c *redisCheck) anybody(ctx context.Context) {
	options := *c.node.Options()
	if options.TLSConfig != nil && len(options.TLSConfig.Certificates) > 0 {
		return
	}
	options.Username, options.Password, options.DB, options.MaxRetries = "", "", 0, -1
	options.CredentialsProvider, options.CredentialsProviderContext, options.StreamingCredentialsProvider = nil, nil, nil
	options.MaintNotificationsConfig = nil // the other client writes to its own, whenever it connects
	client := redis.NewClient(&options)
	defer func() { _ = client.Close() }() // nothing is written through it
	if err := withTimeout(ctx, func(ctx context.Context) error { return client.Ping(ctx).Err() }); err == nil {
		c.report.warn(
			"give it the user in docs/security.md, put that into REDIS_URL, and turn the default user off",
			"it requires no password: whoever can reach it can free and fill limits",
		)
	}
}

// topology is how the servers belong together. go-redis gives the client of Sentinels an address of its own.
func (c *redisCheck) topology() string {
	options := c.node.Options()
	_, cluster := c.client.(*redis.ClusterClient)
	switch {
	case cluster:
		return "Cluster, keys on " + options.Addr
	case options.Addr == "FailoverClient":
		return "primary found through Sentinel"
	case c.info["redis_mode"] == "cluster":
		return "one node of a Cluster at " + options.Addr + ", used like a standalone server"
	}
	return "standalone at " + options.Addr
}

func (c *redisCheck) tls() string {
	if c.node.Options().TLSConfig == nil {
		return "no TLS"
	}
	return "TLS"
}

// scriptCommands are what the scripts in lua/ call. Without the permission for one of them a user passes
// every other check, and then stops the first worker.
var scriptCommands = []string{
	"DEL",
	"EXISTS",
	"GET",
	"HDEL",
	"HEXISTS",
	"HGET",
	"HGETALL",
	"HINCRBY",
	"HKEYS",
	"HLEN",
	"HMGET",
	"HRANDFIELD",
	"HSET",
	"HSETNX",
	"PEXPIRE",
	"PEXPIREAT",
	"SET",
	"TIME",
	"ZADD",
	"ZCARD",
	"ZCOUNT",
	"ZMSCORE",
	"ZRANGE",
	"ZRANGEBYSCORE",
	"ZREM",
	"ZREMRANGEBYRANK",
	"ZREMRANGEBYSCORE",
	"ZREVRANGE",
	"ZREVRANGEBYSCORE",
	"ZSCORE",
}

// ScriptCommands are the Redis commands that the scripts in lua/ call, sorted.
func ScriptCommands() []string { return slices.Clone(scriptCommands) }

// forbidden lists those of ARGV that the user may not run on KEYS[1], which takes every place because some
// commands take several keys. It runs none of them. (The embedded store does not know.)
const forbidden = `
local found = {}
for _, command in ipairs(redis.acl_check_cmd and ARGV or {}) do
  local known, allowed = pcall(redis.acl_check_cmd, command, KEYS[1], KEYS[1], KEYS[1], KEYS[1])
  if known and not allowed then
    found[#found + 1] = command
  end
end
return found`

// CheckPermissions asks whether the user may run every command of the scripts on the keys of a namespace.
// There is one finding if not, and none otherwise.
func CheckPermissions(ctx context.Context, client redis.UniversalClient, namespace string) []Finding {
	check := redisCheck{client: client, namespace: namespace, report: &report{}}
	check.permissions(ctx)
	return check.report.findings
}

func (c *redisCheck) permissions(ctx context.Context) {
	arguments := make([]any, len(scriptCommands))
	for i, command := range scriptCommands {
		arguments[i] = command
	}
	var missing []string
	err := withTimeout(ctx, func(ctx context.Context) (err error) {
		missing, err = c.client.Eval(ctx, forbidden, []string{keyPrefix(c.namespace) + "check"}, arguments...).
			StringSlice()
		return err
	})
	switch {
	case err != nil:
		c.report.fail(redisAdvice(err), "%v", err)
	case slices.Equal(missing, []string{"HRANDFIELD"}):
		c.report.note(
			"give the user the ACL in docs/security.md",
			"the user may not run HRANDFIELD: records of events whose messages were purged stay until their hash expires",
		)
	case len(missing) > 0:
		c.report.fail(
			"give the user the ACL in docs/security.md",
			"the user may not run %s on keys that begin with %s",
			term.List(missing),
			keyPrefix(c.namespace),
		)
	}
}

func (c *redisCheck) clock(ctx context.Context) {
	var skew time.Duration
	err := withTimeout(ctx, func(ctx context.Context) error {
		before := time.Now()
		theirs, err := c.node.Time(ctx).Result()
		skew = theirs.Sub(before.Add(time.Since(before) / 2))
		return err
	})
	switch {
	case err != nil:
		c.report.note("", "clock unknown: %v", err)
	case skew.Abs() > allowedClockSkew:
		direction := "ahead of"
		if skew < 0 {
			direction = "behind"
		}
		c.report.warn(
			"synchronize both by NTP",
			"the clock of Redis is %s %s this host's: it decides when windows roll, while the ages of events are measured by the other clocks",
			skew.Abs().Round(100*time.Millisecond),
			direction,
		)
	default:
		c.report.ok("its clock agrees with this host's within %s", allowedClockSkew)
	}
}
