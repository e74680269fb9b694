package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/internal/settings"
	"notifier/internal/status/report"
	"notifier/internal/term"
)

const seeACL = "give the user the ACL in docs/security.md"

// redisCheck is the state of the checks of Redis, which run one at a time.
type redisCheck struct {
	store settings.Store
	node  *redis.Client     // the server with the keys. In a Cluster, the master of their slot
	info  map[string]string // INFO. Empty if the server refuses it
	clock error             // see ratelimit.Limiter.StandsStill
}

func redisGroup(c Config) group {
	r := &redisCheck{store: c.Settings.Store}
	checks := []check{
		{"redis", r.connect},
		{"redis/version", func(context.Context) []Row { return versionRow(r.info) }},
		{"redis/scripts", r.checkScripts},
		{"redis/clock", r.checkClock},
		{"redis/eviction", func(context.Context) []Row { return evictionRow(r.info) }},
		{"redis/durability", r.checkDurability},
	}
	if c.Replicas != nil {
		checks = append(checks, check{"replicas", func(ctx context.Context) []Row { return replicas(ctx, c) }})
	}
	return group{checks: checks}
}

// checkKey is in the slot of all keys of a namespace. Nothing is stored there.
func checkKey(namespace string) string { return "{" + namespace + "}:check" }

func (r *redisCheck) connect(ctx context.Context) []Row {
	var err error
	switch client := r.store.Redis.(type) {
	case *redis.Client:
		r.node = client
	case *redis.ClusterClient:
		r.node, err = client.MasterForKey(ctx, checkKey(r.store.Namespace))
	}
	if err == nil {
		err = r.node.Time(ctx).Err()
	}
	if err != nil {
		return stop("%s", advised(err, connectAdvice(r.store.Redis, err)))
	}
	var rows []Row
	if r.info, err = ratelimit.Info(ctx, r.node); errors.As(err, new(ratelimit.NoInfo)) {
		rows = one(Warn, "%s", advised(fmt.Sprintf("%v: after a failover or a restart, workers do not restore the "+
			"admissions that Redis has lost", err), redisAdvice(err)))
	}
	options := r.node.Options()
	certificate := options.TLSConfig != nil && len(options.TLSConfig.Certificates) > 0
	if options.Password == "" && !certificate {
		rows = append(rows, one(Warn, "requires no password: anyone in the network can change limits; set it up as "+
			"in docs/security.md")...)
	}
	if _, single := r.store.Redis.(*redis.Client); single && ratelimit.IsClusterNode(r.info) {
		rows = append(rows, one(Warn, ratelimit.OneNodeWarning)...)
	}
	switch {
	case len(rows) > 0:
		return rows
	case options.Addr == failoverAddr:
		return one(OK, "primary found through Sentinel")
	}
	return one(OK, "%s", options.Addr)
}

// failoverAddr is the address of a client that finds its server through Sentinels.
const failoverAddr = "FailoverClient"

// versionRow judges INFO. Valkey also reports the version of Redis with which it is compatible.
func versionRow(info map[string]string) []Row {
	version := info["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	number, err := strconv.Atoi(major)
	switch {
	case err != nil:
		return one(Skip, "unknown; expected Redis %s or later", ratelimit.MinRedisVersion)
	case number < 7:
		return one(Fail, "Redis %s; upgrade to Redis %s or later, or Valkey", version, ratelimit.MinRedisVersion)
	case info["valkey_version"] != "":
		return one(OK, "Valkey %s", info["valkey_version"])
	}
	return one(OK, "Redis %s", version)
}

// neededCommands are the commands without which a script in lua/ or a worker's own pipelines fail. HRANDFIELD
// is not needed: without it some records only expire later.
var neededCommands = strings.Fields(`
	DEL EXISTS GET HDEL HGET HGETALL HINCRBY HLEN HMGET HSET PEXPIRE PEXPIREAT SET TIME
	ZADD ZCARD ZCOUNT ZMSCORE ZRANGE ZRANGEBYSCORE ZREM ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANGE
	ZREVRANGEBYSCORE ZSCORE`)

// NeededCommands returns the commands without which a script in lua/ or a worker's pipeline fails, sorted.
func NeededCommands() []string { return slices.Clone(neededCommands) }

// forbidden returns the commands in ARGV that the user may not run on KEYS[1], and runs none of them. The key
// is passed several times because some commands need several. The embedded store has no ACL.
const forbidden = `
local found = {}
for _, command in ipairs(redis.acl_check_cmd and ARGV or {}) do
  local known, allowed = pcall(redis.acl_check_cmd, command, KEYS[1], KEYS[1], KEYS[1], KEYS[1])
  if known and not allowed then
    found[#found + 1] = command
  end
end
return found`

// ForbiddenCommands returns the NeededCommands that the client's user may not run on the keys of a namespace.
// An error means that Redis did not reply, or that the user may not run EVAL.
func ForbiddenCommands(ctx context.Context, client redis.UniversalClient, namespace string) ([]string, error) {
	arguments := make([]any, len(neededCommands))
	for i, command := range neededCommands {
		arguments[i] = command
	}
	return client.Eval(ctx, forbidden, []string{checkKey(namespace)}, arguments...).StringSlice()
}

// checkScripts decides about an event without charging it, and checks that the scripts could write.
func (r *redisCheck) checkScripts(ctx context.Context) []Row {
	limiter, err := ratelimit.New(r.store.Redis, r.store.Namespace, r.store.Limits, r.store.Dedupe)
	if err == nil {
		_, err = limiter.DryRun(ctx, "", 1)
		r.clock = limiter.StandsStill()
	}
	var missing []string
	if err == nil {
		missing, err = ForbiddenCommands(ctx, r.store.Redis, r.store.Namespace)
	}
	if err != nil {
		return stop("%s", advised(err, redisAdvice(err)))
	}
	if len(missing) > 0 {
		commands := strings.Join(missing, ", ")
		return one(Fail, "the user may not run %s on {%s}:*; %s", commands, r.store.Namespace, seeACL)
	}
	reports, err := report.NewReader(r.store.Redis, r.store.Namespace)
	if err != nil {
		return stop("%v", err)
	}
	if err := reports.RefusesWrites(ctx); err != nil {
		return one(Fail, "the server takes no writes: %s", advised(err, redisAdvice(err)))
	}
	return one(OK, "the user may run the scripts, and the server takes writes")
}

// checkClock fails if no slot becomes free. The decision of checkScripts has found out.
func (r *redisCheck) checkClock(context.Context) []Row {
	if r.clock != nil {
		return one(Fail, "%v", r.clock)
	}
	return one(OK, "not behind any admission")
}

// evictionRow warns if a full server evicts admissions.
func evictionRow(info map[string]string) []Row {
	if info["maxmemory_policy"] == "" || info["maxmemory"] == "" {
		return one(Skip, "unknown; maxmemory-policy has to be noeviction")
	}
	if err := ratelimit.Eviction(info); err != nil {
		return one(Warn, "%v", err)
	}
	return one(OK, "nothing is evicted")
}

// checkDurability warns if a restart loses all admissions.
func (r *redisCheck) checkDurability(ctx context.Context) []Row {
	values, err := r.node.ConfigGet(ctx, "save").Result() // most providers forbid it
	save, known := values["save"]
	switch {
	case r.info["aof_enabled"] == "1":
		return one(OK, "append-only file")
	case r.info["aof_enabled"] == "" || err != nil || !known:
		return one(Skip, "unknown; set appendonly yes")
	case save != "":
		return one(OK, "snapshots")
	}
	return one(Warn, "neither append-only file nor snapshots: after a restart only running workers can restore "+
		"admissions; set appendonly yes")
}

// replicas warns if running workers have other settings than those that are checked.
func replicas(ctx context.Context, c Config) []Row {
	all, err := c.Replicas.Replicas(ctx)
	if err != nil {
		return one(Skip, "unknown: %v", err)
	}
	running := 0
	var others []string
	for _, replica := range all {
		if replica.Silent {
			continue
		}
		running++
		if hash := replica.Snapshot.Settings.Hash; hash != c.Hash {
			others = append(others, hash)
		}
	}
	switch {
	case running == 0:
		return one(OK, "no worker is running")
	case len(others) == 0:
		return one(OK, "%s, none with other settings (%s)", term.Count(running, "worker"), c.Hash)
	}
	slices.Sort(others)
	return one(Warn, "settings differ in %d of %s (%s, these are %s); restart them, correct these, or give "+
		"each deployment its own REDIS_NAMESPACE", len(others), term.Count(running, "worker"),
		strings.Join(slices.Compact(others), ", "), c.Hash)
}

const (
	unreachable = "check REDIS_URL, and the network"
	manyClients = "if the server has reached its maxclients, which it tells few clients, raise that; " +
		"else check REDIS_URL"
)

// redisAdvice returns the remedy for an error, or "".
func redisAdvice(err error) string {
	if advice := redisAddress.advice(err); advice != "" {
		return advice
	}
	text := err.Error()
	for _, known := range []struct{ sign, advice string }{
		{"NOPERM", seeACL},
		{"may not run INFO", seeACL},
		{"can't run this command", seeACL}, // in a script
		{"WRONGPASS", "check the user and the password in REDIS_URL"},
		{"NOAUTH", "put the user and the password into REDIS_URL"},
		{"READONLY", "this is a replica: name the primary in REDIS_URL, or Sentinels with master_name="},
		{`"INFO {`, "this is a NATS server: REDIS_URL needs the port of Redis"},
		{"MISCONF", "it cannot write to its disk: see its log"},
		{"OOM", "it is full: give it more memory, or set smaller limits"},
		{"DB index is out of range", "name an existing database in REDIS_URL: most servers have 0 to 15"},
		{"SELECT is not allowed in cluster mode", "name no database in REDIS_URL: a Cluster has only 0"},
		{"max number of clients", manyClients},
		{"connection reset", manyClients},
		{"broken pipe", manyClients},
		{"EOF", "a server with TLS needs rediss:// in REDIS_URL, one without TLS redis://; or it has reached its " +
			"maxclients"},
		{"timeout", unreachable},
		{"deadline exceeded", unreachable},
	} {
		if strings.Contains(text, known.sign) {
			return known.advice
		}
	}
	return ""
}

// connectAdvice is redisAdvice for a failed connection, which can depend on TLS and on Sentinels.
func connectAdvice(client redis.UniversalClient, err error) string {
	text := err.Error()
	single, _ := client.(*redis.Client) // nil for a Cluster
	sentinel := single != nil && single.Options().Addr == failoverAddr
	refused := strings.Contains(text, "WRONGPASS") || strings.Contains(text, "NOAUTH")
	switch {
	case strings.Contains(text, "tls: certificate required"):
		return "set REDIS_TLS_CERT and REDIS_TLS_KEY"
	case strings.Contains(text, "remote error: tls: ") && strings.Contains(text, "certificate"):
		return "the server refuses REDIS_TLS_CERT"
	case refused && sentinel && strings.Contains(text, "all sentinels specified"):
		return "check the user and the password before the @ in REDIS_URL, which are the Sentinels'; " +
			"username= and password= are the server's"
	case refused && sentinel:
		return "check username= and password= in REDIS_URL, which are the server's; " +
			"the user and the password before the @ are the Sentinels'"
	}
	advice := redisAdvice(err)
	if single == nil || single.Options().TLSConfig == nil {
		return advice
	}
	switch {
	case advice == unreachable:
		advice += "; if the server has no TLS, use redis://"
	// The alert about a certificate is lost if the server closes before this side has written.
	case advice == manyClients && len(single.Options().TLSConfig.Certificates) == 0:
		advice = "if the server demands a certificate, set REDIS_TLS_CERT and REDIS_TLS_KEY; " + advice
	case advice == manyClients:
		advice = "perhaps the server refuses REDIS_TLS_CERT; " + advice
	}
	return advice
}
