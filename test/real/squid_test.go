package real

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"notifier/internal/devstack"
	"notifier/internal/devstack/https"
	"notifier/test/kit"
)

// squidConf lets the users of a password file reach one port by CONNECT.
const squidConf = `http_port {{listen}}
hosts_file {{folder}}/hosts
auth_param basic program {{helper}} {{folder}}/passwd
acl authenticated proxy_auth REQUIRED
acl SSL_ports port {{port}}
http_access deny CONNECT !SSL_ports
http_access allow authenticated
http_access deny all
access_log none
cache_log /dev/null
pid_filename none
coredump_dir {{folder}}
pinger_enable off
max_filedescriptors 1024
`

// squidUser is a line of the password file, as htpasswd writes it for "hunter2".
const squidUser = "me:$apr1$TVau45lE$vWRTBRLM19J313vzH4F5E.\n"

// startSquid starts squid, which knows slackHost and lets the user "me" reach one port. It returns the
// process and the proxy's address.
func startSquid(t *testing.T, path, port string) (*process, string) {
	t.Helper()
	helpers, err := filepath.Glob("/usr/lib*/squid/basic_ncsa_auth")
	kit.Check(t, err)
	if len(helpers) == 0 {
		t.Fatal("squid has no basic_ncsa_auth below /usr/lib*/squid")
	}
	// As root squid becomes another user, who may not enter the folder of the test.
	files, err := os.MkdirTemp("", "notifier-squid-")
	kit.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(files) })
	kit.Check(t, os.Chmod(files, 0o755))
	listen := kit.FreeAddr(t)
	conf := strings.NewReplacer("{{listen}}", listen, "{{folder}}", files, "{{helper}}", helpers[0], "{{port}}", port).Replace(squidConf)
	for name, text := range map[string]string{"squid.conf": conf, "hosts": "127.0.0.1 " + slackHost + "\n", "passwd": squidUser} {
		kit.Check(t, os.WriteFile(filepath.Join(files, name), []byte(text), 0o644))
	}
	squid := start(t, path, nil, "-N", "-d", "1", "-f", filepath.Join(files, "squid.conf"))
	kit.Eventually(t, "squid listens", func() bool { return listens(listen) })
	return squid, listen
}

func listens(addr string) bool {
	connection, err := net.Dial("tcp", addr)
	if err == nil {
		_ = connection.Close()
	}
	return err == nil
}

// TestSquid: a worker posts through squid. While squid is down, events are held and status says so. The
// worker sends them when squid is back, without a restart.
func TestSquid(t *testing.T) {
	t.Parallel()
	path := squidRow.need(t)
	_, env := services(t)
	authority, err := https.SelfSigned(slackHost)
	kit.Check(t, err)
	file := filepath.Join(t.TempDir(), "slack.pem")
	kit.Check(t, authority.Save(file))
	slack, err := devstack.StartSlackTLS("127.0.0.1:0", &https.Server{Certificate: authority})
	kit.Check(t, err)
	t.Cleanup(func() { _ = slack.Close() })
	port := portOf(strings.TrimPrefix(slack.URL(), "https://"))
	squid, listen := startSquid(t, path, port)
	env["SSL_CERT_FILE"] = file
	env["SLACK_API_URL"] = "https://" + net.JoinHostPort(slackHost, port) + "/api/"
	proxy := func(password string) string {
		return (&url.URL{Scheme: "http", User: url.UserPassword("me", password), Host: listen}).String()
	}

	env["HTTPS_PROXY"] = proxy("wrong")
	if out, err := try(t, env, "check"); err == nil || !strings.Contains(out, "proxy_407") {
		t.Errorf("check with a wrong password: %v, expected proxy_407\n%s", err, out)
	}
	env["HTTPS_PROXY"] = proxy("hunter2")
	worker := startWorker(t, env)
	run(t, env, "check")

	all := &events{js: kit.JetStream(t, env["NATS_URL"])}
	all.publish(t, "before", 10)
	all.account(t, worker, slack)
	for range 2 {
		squid.kill(t)
		all.publish(t, "during", 10)
		kit.Eventually(t, "status says that nothing is sent", func() bool {
			return strings.HasPrefix(run(t, env, "status"), "Not sending")
		})
		squid.again(t)
		all.publish(t, "after", 10)
		if ambiguous := all.account(t, worker, slack); ambiguous > 1 { // at most the post that was under way
			t.Errorf("%d events are ambiguous, expected at most the one that was under way", ambiguous)
		}
	}
}
