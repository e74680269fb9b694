package preflight

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

func onRedis(url string) change { return func(env map[string]string) { env["REDIS_URL"] = url } }

// redisRows runs the checks of Redis.
func redisRows(t *testing.T, changes ...change) []Row {
	t.Helper()
	return found(t, redisGroup(Config{Settings: parsed(t, changes...)}))
}

// asUser returns the URL for a user with these ACL rules.
func asUser(t *testing.T, server *redistest.Server, name string, rules ...string) string {
	t.Helper()
	server.SetUser(t, secret, name, rules...)
	return "redis://" + name + ":" + secret + "@" + server.Addr
}

// TestRedisAsItShouldBe has no warnings, and check writes nothing to it.
func TestRedisAsItShouldBe(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t, "--appendonly", "yes", "--maxmemory", "64mb")
	url := asUser(t, server, "notifier", "~{notifier}:*", "+@all")
	server.SetUser(t, secret, "default", "resetpass", "~*", "+@all")
	rows := redisRows(t, onRedis(url))
	want(t, rows, "redis", OK, server.Addr)
	want(t, rows, "redis/version", OK, "Redis ")
	want(t, rows, "redis/scripts", OK, "the user may run the scripts, and the server takes writes")
	want(t, rows, "redis/clock", OK, "not behind any admission")
	want(t, rows, "redis/eviction", OK, "nothing is evicted")
	want(t, rows, "redis/durability", OK, "append-only file")
	for _, state := range []State{Warn, Fail, Skip} {
		wantOnly(t, rows, state)
	}
	info, err := kit.OpenRedis(t, url).Info(t.Context(), "persistence").Result()
	kit.Check(t, err)
	if !strings.Contains(info, "rdb_changes_since_last_save:0\r\n") {
		t.Errorf("check has written: %s", info)
	}
}

func TestFaultsOfRedis(t *testing.T) {
	t.Parallel()
	start := func(arguments ...string) func(t *testing.T) string {
		return func(t *testing.T) string { t.Helper(); return redistest.StartProcess(t, arguments...).URL() }
	}
	as := func(rules ...string) func(t *testing.T) string {
		return func(t *testing.T) string { t.Helper(); return asUser(t, redistest.StartProcess(t), "me", rules...) }
	}
	for name, test := range map[string]struct {
		url   func(t *testing.T) string
		name  string
		state State
		text  string
	}{
		"no password": {start(), "redis", Warn, "requires no password: anyone in the network can change limits"},
		"no database": {func(t *testing.T) string {
			t.Helper()
			return "redis://" + redistest.StartProcess(t, "--databases", "4").Addr + "/9"
		}, "redis", Fail, "name an existing database in REDIS_URL"},
		"no TLS":       {func(t *testing.T) string { t.Helper(); return strings.Replace(start()(t), "redis:", "rediss:", 1) }, "redis", Fail, "redis://"},
		"NATS":         {func(t *testing.T) string { t.Helper(); return strings.Replace(startNATS(t), "nats:", "redis:", 1) }, "redis", Fail, "this is a NATS server: REDIS_URL needs the port of Redis"},
		"wrong user":   {func(t *testing.T) string { t.Helper(); return strings.Replace(as("+@all")(t), "me:", "you:", 1) }, "redis", Fail, "check the user and the password in REDIS_URL"},
		"no INFO":      {as("~*", "+@all", "-info"), "redis", Warn, "the user may not run INFO: after a failover or a restart, workers do not restore the admissions that Redis has lost; " + seeACL},
		"INFO renamed": {start("--rename-command", "INFO", ""), "redis", Warn, "the server refuses INFO (ERR unknown command"},
		"a socket": {func(t *testing.T) string {
			t.Helper()
			path := filepath.Join(t.TempDir(), "redis.sock")
			redistest.StartProcess(t, "--unixsocket", path)
			return "unix://:" + secret + "@" + path
		}, "redis", OK, "redis.sock"},
		"no clients left": {func(t *testing.T) string {
			t.Helper()
			server := redistest.StartProcess(t)
			kit.Check(t, server.Client(t).ConfigSet(t.Context(), "maxclients", "1").Err()) // the client is connected
			return server.URL()
		}, "redis", Fail, "maxclients"},
		"no socket": {func(t *testing.T) string { t.Helper(); return "unix:///nowhere/redis.sock" }, "redis", Fail, "no such file or directory; check the path in REDIS_URL, and whether the server is running"},
		"set back": {func(t *testing.T) string {
			t.Helper()
			server := redistest.StartProcess(t)
			ahead := time.Now().Add(20 * time.Hour).UnixMicro()
			kit.Check(t, server.Client(t).HSet(t.Context(), "{notifier}:meta", "clock", ahead).Err())
			return server.URL()
		}, "redis/clock", Fail, "behind the newest admission: no slot becomes free until it catches up. If it is right now, run HDEL {notifier}:meta clock"},
		"no scripts":   {as("~*", "+time", "+info"), "redis/scripts", Fail, seeACL},
		"few commands": {as("~*", "+@all", "-zrem", "-hset"), "redis/scripts", Fail, "the user may not run HSET, ZREM on {notifier}:*; " + seeACL},
		"full":         {start("--maxmemory", "1"), "redis/scripts", Fail, "the server takes no writes: OOM"},
		"evicts":       {start("--maxmemory", "64mb", "--maxmemory-policy", "volatile-lru"), "redis/eviction", Warn, "maxmemory-policy volatile-lru: at 64.0 MiB Redis forgets admissions"},
		"not durable":  {start("--save", ""), "redis/durability", Warn, "neither append-only file nor snapshots"},
		"snapshots":    {start("--save", "60 1"), "redis/durability", OK, "snapshots"},
		"no CONFIG":    {start("--rename-command", "CONFIG", ""), "redis/durability", Skip, "unknown; set appendonly yes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows := redisRows(t, onRedis(test.url(t)))
			want(t, rows, test.name, test.state, test.text)
			if test.state != Fail {
				wantOnly(t, rows, Fail)
			}
		})
	}
}

// TestReplicaOfRedis: a replica runs scripts and takes no writes.
func TestReplicaOfRedis(t *testing.T) {
	t.Parallel()
	primary := redistest.StartProcess(t)
	rows := redisRows(t, onRedis(primary.StartReplica(t).URL()))
	want(t, rows, "redis/scripts", Fail, "this is a replica: name the primary in REDIS_URL")
}

func TestVersionsOfRedis(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		redis, valkey string
		state         State
		text          string
	}{
		{"6.2.14", "", Fail, "Redis 6.2.14; upgrade to Redis 7.0 or later, or Valkey"},
		{"7.0.15", "", OK, "Redis 7.0.15"},
		{"7.2.4", "8.1.1", OK, "Valkey 8.1.1"},
		{"", "", Skip, "unknown; expected Redis 7.0 or later"},
	} {
		row := versionRow(map[string]string{"redis_version": test.redis, "valkey_version": test.valkey})[0]
		if row.State != test.state || row.Message != test.text {
			t.Errorf("%+v, expected %s %q", row, test.state, test.text)
		}
	}
}

// TestClusterAndSentinel: the server with the keys is checked. One node of a Cluster is not enough.
func TestClusterAndSentinel(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	owner, other := cluster.Owner(t, checkKey("notifier")), cluster.Other(t, checkKey("notifier"))
	rows := redisRows(t, onRedis(cluster.URL()))
	wantOnly(t, rows, Fail)
	want(t, rows, "redis/scripts", OK, "")
	rows = redisRows(t, onRedis(owner.URL()))
	want(t, rows, "redis/scripts", OK, "")
	want(t, rows, "redis", Warn, ratelimit.OneNode)
	want(t, redisRows(t, onRedis(other.URL())), "redis/scripts", Fail, "this is one node of a Cluster")

	sentinels := redistest.StartSentinels(t, 0)
	want(t, redisRows(t, onRedis(sentinels.URL())), "redis/scripts", OK, "")
	sentinels.Primary.SetUser(t, secret+"1", "notifier", "~*", "&*", "+@all")
	sentinels.Primary.SetUser(t, secret+"0", "default", "~*", "&*", "+@all")
	for _, watcher := range sentinels.Watchers {
		watcher.SetUser(t, secret+"2", "watcher", "allchannels", "+@all")
		watcher.SetUser(t, secret+"0", "default", "allchannels", "+@all")
	}
	by := func(user, parameters string) []Row {
		return redisRows(t, onRedis(strings.Replace(sentinels.URL(), "redis://", "redis://"+user, 1)+parameters))
	}
	watcher, notifier := "watcher:"+secret+"2@", "&username=notifier&password="+secret+"1"
	rows = by(watcher, notifier)
	want(t, rows, "redis", OK, "primary found through Sentinel")
	wantOnly(t, rows, Fail)
	// The user of the URL is the Sentinels', the parameters are the server's.
	const ofSentinels, ofServer = "check the user and the password before the @", "check username= and password="
	want(t, by("", notifier), "redis", Fail, ofSentinels)
	want(t, by(watcher, ""), "redis", Fail, ofServer)
}

// TestCertificatesOfRedis: the remedy is REDIS_TLS_CA only if that is at fault.
func TestCertificatesOfRedis(t *testing.T) {
	t.Parallel()
	authority, another := kit.NewAuthority(t, "ours"), kit.NewAuthority(t, "another")
	primary := redistest.StartTLSServer(t, authority, redistest.Identity{Address: "127.0.0.3", Names: []string{"a.example", "127.0.0.4"}})
	identity := redistest.Identity{Address: "127.0.0.2", Names: []string{"127.0.0.2"}}
	watcher := redistest.StartTLSSentinel(t, authority, identity, primary)
	strict := redistest.StartTLSServer(t, authority, identity, "--tls-auth-clients", "yes")
	sentinels := "rediss://" + watcher.Addr + "?master_name=main"
	cert, key := another.Issue(t, "client.example")
	for name, test := range map[string]struct {
		url, ca, cert, key string
		text               string
	}{
		"another name":      {url: sentinels, ca: authority.File, text: "give the server a certificate for 127.0.0.3"},
		"another authority": {url: sentinels, ca: another.File, text: "set REDIS_TLS_CA to the authority that signed the server's certificate, or add it"},
		"no client":         {url: "rediss://" + strict.Addr, ca: authority.File, text: "set REDIS_TLS_CERT and REDIS_TLS_KEY"},
		"unknown client":    {url: "rediss://" + strict.Addr, ca: authority.File, cert: cert, key: key, text: "the server refuses REDIS_TLS_CERT"},
	} {
		t.Run(name, func(t *testing.T) {
			rows := redisRows(t, func(env map[string]string) {
				env["REDIS_URL"], env["REDIS_TLS_CA"], env["REDIS_TLS_CERT"], env["REDIS_TLS_KEY"] = test.url, test.ca, test.cert, test.key
			})
			want(t, rows, "redis", Fail, test.text)
		})
	}
}
