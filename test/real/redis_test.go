package real

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"notifier/test/kit"
)

// redisConf demands a client's certificate and a user of the file, and has every write on disk before Redis
// confirms it.
const redisConf = `port 0
tls-port {{port}}
bind 127.0.0.1
tls-cert-file {{certificate}}
tls-key-file {{key}}
tls-ca-cert-file {{authority}}
tls-auth-clients yes
aclfile {{folder}}/users.acl
dir {{folder}}
appendonly yes
appendfsync always
save ""
`

// TestRedisServer: a worker, a reader and an operator use a Redis that is set up as docs/security.md says,
// and the worker recovers from a crash of Redis.
func TestRedisServer(t *testing.T) {
	t.Parallel()
	path := redisRow.need(t)
	slack, env := services(t)
	files, authority, addr := t.TempDir(), kit.NewAuthority(t, "ours"), kit.FreeAddr(t)
	certificate, key := authority.Issue(t, "127.0.0.1")
	own, ownKey := authority.Issue(t, "worker")
	conf := strings.NewReplacer("{{port}}", portOf(addr), "{{certificate}}", certificate, "{{key}}", key, "{{authority}}", authority.File,
		"{{folder}}", files).Replace(redisConf)
	kit.Check(t, os.WriteFile(filepath.Join(files, "redis.conf"), []byte(conf), 0o600))
	users := "user default off resetpass ~* &* +@all\n" + block(t, "docs/security.md", "redis-acl") + block(t, "docs/security.md", "redis-acl-reader") + block(t, "docs/security.md", "redis-acl-operator")
	kit.Check(t, os.WriteFile(filepath.Join(files, "users.acl"), []byte(strings.ReplaceAll(users, "PASSWORD", "hunter2")), 0o600))
	server := start(t, path, nil, filepath.Join(files, "redis.conf"))
	as := func(user string) string {
		return (&url.URL{Scheme: "rediss", User: url.UserPassword(user, "hunter2"), Host: addr}).String()
	}

	env["REDIS_URL"], env["REDIS_TLS_CA"] = as("notifier"), authority.File
	kit.Eventually(t, "redis-server listens", func() bool { return listens(addr) })
	if out, err := try(t, env, "check"); err == nil || !strings.Contains(out, "redis ") {
		t.Errorf("check without a certificate: %v, expected an error\n%s", err, out)
	}
	env["REDIS_TLS_CERT"], env["REDIS_TLS_KEY"] = own, ownKey
	worker := startWorker(t, env)
	for _, line := range strings.Split(run(t, env, "check"), "\n") {
		if strings.HasPrefix(line, "redis") && !strings.Contains(line, " ok ") {
			t.Errorf("check: %s, expected ok", line)
		}
	}
	all := &events{js: kit.JetStream(t, env["NATS_URL"])}
	all.publish(t, "before", 10)
	all.account(t, worker, slack)
	server.kill(t)
	all.publish(t, "during", 10)
	kit.Eventually(t, "the worker is not ready without Redis", func() bool { return worker.Ready() != nil })
	server.again(t)
	all.account(t, worker, slack)
	kit.EventuallyNil(t, worker.Ready)

	env["REDIS_URL"] = as("reader")
	if out := run(t, env, "status"); !strings.Contains(out, "20/10000") {
		t.Errorf("a reader's status, after 20 events:\n%s", out)
	}
	if out, err := try(t, env, "mute", "add", "-by", "me", "-for", "1h", "loud"); err == nil {
		t.Errorf("a reader may mute: %s", out)
	}
	env["REDIS_URL"] = as("operator")
	run(t, env, "mute", "add", "-by", "me", "-for", "1h", "loud")
	kit.Eventually(t, "the worker drops what is muted", func() bool {
		_, err := all.js.Publish(t.Context(), "notify.loud", []byte("muted"))
		kit.Check(t, err)
		lines, err := worker.Lines()
		return err == nil && slices.ContainsFunc(lines, func(l kit.LogLine) bool { return l.Reason == "muted" && l.MutedBy == "me" })
	})
}
