package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
)

// farApart is how far the clocks of Redis and of this host may be apart without a word.
const farApart = time.Second

// checkRedis connects as a worker would, runs the script on nothing, and looks at what could make the server forget or
// refuse. It writes nothing.
func checkRedis(ctx context.Context, c config, f *findings) {
	look := redisLook{client: c.redis, prefix: "{" + c.namespace + "}:", f: f}
	limiter, err := ratelimit.New(c.redis, c.namespace, c.rules, c.dedupe)
	if err == nil {
		err = look.bounded(ctx, look.findNode)
	}
	if err == nil {
		err = look.bounded(ctx, limiter.Check)
	}
	if err != nil {
		f.fail(redisAdvice(err), "%v", err)
		return
	}
	look.server(ctx)
	asked := time.Now()
	if err := look.bounded(ctx, limiter.Ready); err != nil {
		f.fail(redisAdvice(err), "%v", err)
		return
	}
	f.ok("the script runs and answers in %s", time.Since(asked).Round(10*time.Microsecond))
	look.commands(ctx)
	look.clock(ctx)
	look.memory()
	look.persistence(ctx)
	look.replication(ctx)
}

// redisAdvice says what to do about an error of Redis.
func redisAdvice(err error) string {
	text := err.Error()
	for _, known := range []struct{ sign, advice string }{
		{"NOPERM", "give the user the ACL of docs/security.md"},
		{"can't run this command", "give the user the ACL of docs/security.md"}, // in a script
		{"WRONGPASS", "look at the user and the password in REDIS_URL"},
		{"NOAUTH", "put the user and the password into REDIS_URL"},
		{"READONLY", "REDIS_URL names a replica: name the primary, or the Sentinels with master_name="},
		{"NOREPLICAS", "it waits for replicas, see min-replicas-to-write"},
		{"MISCONF", "it cannot write to its disk: look at its log"},
		{"LOADING", "it still reads its data: wait"},
		{"certificate", "set REDIS_TLS_CA to the authority that has signed the server's certificate"},
		{"connection refused", "look at REDIS_URL, and whether the server runs"},
		{"no such host", "look at REDIS_URL"},
		{"EOF", "a server with TLS needs rediss:// in REDIS_URL, one without redis://"},
		{"first record does not look like a TLS handshake", "a server without TLS needs redis:// in REDIS_URL"},
	} {
		if strings.Contains(text, known.sign) {
			return known.advice
		}
	}
	if errors.Is(err, context.DeadlineExceeded) || strings.Contains(text, "timeout") {
		return "look at REDIS_URL, and at the network"
	}
	return ""
}

// redisLook looks at the one server that keeps the keys.
type redisLook struct {
	client redis.UniversalClient
	node   *redis.Client // of a Cluster, the master of the keys' slot
	prefix string        // of all keys
	f      *findings
	info   map[string]string // what INFO tells; empty where the user or the server does not let us know
}

// bounded gives one question its time.
func (l *redisLook) bounded(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	return ask(ctx)
}

func (l *redisLook) findNode(ctx context.Context) (err error) {
	switch client := l.client.(type) {
	case *redis.Client:
		l.node = client
	case *redis.ClusterClient:
		l.node, err = client.MasterForKey(ctx, l.prefix)
	default:
		err = fmt.Errorf("unknown kind of client %T", client)
	}
	return err
}

// server tells what it is.
func (l *redisLook) server(ctx context.Context) {
	l.info = map[string]string{}
	_ = l.bounded(ctx, func(ctx context.Context) error { // an error means that nothing is told
		text, err := l.node.Info(ctx).Result()
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			l.info[name] = value
		}
		return err
	})
	version := "version not told"
	switch {
	case l.info["valkey_version"] != "":
		version = "Valkey " + l.info["valkey_version"]
	case l.info["redis_version"] != "":
		version = "Redis " + l.info["redis_version"]
	}
	l.f.ok("%s, %s, %s", version, l.mode(), l.tls())
	if l.info["role"] == "slave" {
		l.f.fail("REDIS_URL names a replica: name the primary, or the Sentinels with master_name=", "it is a replica, and takes no writes")
	}
}

// mode is how the servers belong together. go-redis gives the client of Sentinels an address of its own.
func (l *redisLook) mode() string {
	options := l.node.Options()
	_, cluster := l.client.(*redis.ClusterClient)
	switch {
	case cluster:
		return "Cluster, keys on " + options.Addr
	case options.Addr == "FailoverClient":
		return "primary found through Sentinel"
	case l.info["redis_mode"] == "cluster":
		return "one node of a Cluster at " + options.Addr + ", asked like a standalone server"
	}
	return "standalone at " + options.Addr
}

func (l *redisLook) tls() string {
	if l.node.Options().TLSConfig == nil {
		return "no TLS"
	}
	return "TLS"
}

// scriptCommands are what the scripts in lua/ call. A user who may not run one of them gets through every look, and then
// stops the first worker.
var scriptCommands = []string{
	"DEL", "EXISTS", "GET", "HDEL", "HEXISTS", "HGET", "HGETALL", "HINCRBY", "HKEYS", "HLEN", "HMGET", "HSET", "HSETNX",
	"PEXPIRE", "PEXPIREAT", "PEXPIRETIME", "SET", "TIME", "ZADD", "ZCARD", "ZCOUNT", "ZMSCORE", "ZRANGEBYSCORE", "ZREM",
	"ZREMRANGEBYRANK", "ZREMRANGEBYSCORE", "ZREVRANGE",
}

// forbidden lists those of ARGV that the user may not run on KEYS[1], which stands in all places because some commands
// take several keys. It runs none of them. (The embedded store cannot tell.)
const forbidden = `
local found = {}
for _, command in ipairs(redis.acl_check_cmd and ARGV or {}) do
  local known, allowed = pcall(redis.acl_check_cmd, command, KEYS[1], KEYS[1], KEYS[1], KEYS[1])
  if known and not allowed then
    found[#found + 1] = command
  end
end
return found`

func (l *redisLook) commands(ctx context.Context) {
	arguments := make([]any, len(scriptCommands))
	for i, command := range scriptCommands {
		arguments[i] = command
	}
	var missing []string
	err := l.bounded(ctx, func(ctx context.Context) (err error) {
		missing, err = l.client.Eval(ctx, forbidden, []string{l.prefix + "check"}, arguments...).StringSlice()
		return err
	})
	switch {
	case err != nil:
		l.f.fail(redisAdvice(err), "%v", err)
	case len(missing) > 0:
		l.f.fail("give the user the ACL of docs/security.md", "the user may not run %s on keys that begin with %s", listed(missing), l.prefix)
	}
}

func (l *redisLook) clock(ctx context.Context) {
	var apart time.Duration
	err := l.bounded(ctx, func(ctx context.Context) error {
		before := time.Now()
		theirs, err := l.node.Time(ctx).Result()
		apart = theirs.Sub(before.Add(time.Since(before) / 2))
		return err
	})
	switch {
	case err != nil:
		l.f.note("", "clock not told: %v", err)
	case apart.Abs() > farApart:
		direction := "ahead of"
		if apart < 0 {
			direction = "behind"
		}
		l.f.warn("let both keep time by NTP", "the clock of Redis is %s %s this host's: windows roll by it, and ages of events are counted by the others", apart.Abs().Round(100*time.Millisecond), direction)
	default:
		l.f.ok("its clock agrees with this host's within %s", farApart)
	}
}
