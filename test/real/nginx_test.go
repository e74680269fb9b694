package real

import (
	"crypto/tls"
	"encoding/base64"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"notifier/internal/devstack"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// slackHost is the name in nginx's certificate that only the proxy of the tests can resolve.
const slackHost = "slack.test"

// nginxConf has two servers that stand before the fake Slack: one with HTTP/2, as Slack has, and one without.
// Both compress. From 1.25 on nginx warns that "listen ... http2" is deprecated; 1.22 knows no other form.
const nginxConf = `daemon off;
master_process off;
pid {{folder}}/pid;
error_log stderr warn;
events {}
http {
  log_format protocol '$server_port $server_protocol $uri $status';
  access_log {{folder}}/access.log protocol;
  client_body_temp_path {{folder}}/body;
  proxy_temp_path {{folder}}/proxy;
  fastcgi_temp_path {{folder}}/fastcgi;
  uwsgi_temp_path {{folder}}/uwsgi;
  scgi_temp_path {{folder}}/scgi;
  gzip on;
  gzip_min_length 1;
  gzip_types application/json text/plain;
  ssl_certificate {{certificate}};
  ssl_certificate_key {{key}};
  server { listen {{http2}} ssl http2; location / { proxy_pass {{slack}}; } }
  server { listen {{http1}} ssl; location / { proxy_pass {{slack}}; } }
}
`

// nginx stands before a fake Slack.
type nginx struct {
	folder       string
	authority    *kit.Authority
	http2, http1 string // addresses of its servers
}

func startNginx(t *testing.T, path, slackURL string) *nginx {
	t.Helper()
	n := &nginx{folder: t.TempDir(), authority: kit.NewAuthority(t, "ours"), http2: kit.FreeAddr(t), http1: kit.FreeAddr(t)}
	certificate, key := n.authority.Issue(t, slackHost, "127.0.0.1")
	conf := strings.NewReplacer("{{folder}}", n.folder, "{{certificate}}", certificate, "{{key}}", key,
		"{{http2}}", n.http2, "{{http1}}", n.http1, "{{slack}}", slackURL).Replace(nginxConf)
	file := filepath.Join(n.folder, "nginx.conf")
	kit.Check(t, os.WriteFile(file, []byte(conf), 0o600))
	command := exec.Command(path, "-e", "stderr", "-p", n.folder, "-c", file)
	var said kit.Output
	command.Stderr = &said
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("nginx: %s", said.String())
		}
	})
	_, err := kit.StartWithTest(t, command)
	kit.Check(t, err)
	for addr, major := range map[string]int{n.http2: 2, n.http1: 1} {
		kit.EventuallyNil(t, func() error {
			connection, err := net.Dial("tcp", addr)
			if err == nil {
				err = connection.Close()
			}
			return err
		})
		n.expectProtocol(t, addr, major)
	}
	return n
}

// expectProtocol makes a request that offers both versions of HTTP, and expects one of them, and a compressed
// response.
func (n *nginx) expectProtocol(t *testing.T, addr string, major int) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: n.authority.Pool()}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get("https://" + addr + "/healthz")
	kit.Check(t, err)
	_ = response.Body.Close()
	if response.ProtoMajor != major || !response.Uncompressed {
		t.Fatalf("nginx speaks %s at %s, compressed: %t; expected HTTP/%d and true", response.Proto, addr, response.Uncompressed, major)
	}
}

// requests returns the log of notifier's requests: port, protocol, path and status of each.
func (n *nginx) requests(t *testing.T) []string {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(n.folder, "access.log"))
	kit.Check(t, err)
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, " /healthz ") })
}

// TestNginx: notifier's commands and a worker reach Slack through nginx, with and without HTTP/2, directly
// and through a proxy that wants a password.
func TestNginx(t *testing.T) {
	path := need(t, "nginx")
	slack, err := devstack.StartSlack("127.0.0.1:0")
	kit.Check(t, err)
	t.Cleanup(func() { _ = slack.Close() })
	nginx := startNginx(t, path, slack.URL())
	for _, server := range []struct{ name, addr string }{{"HTTP/2", nginx.http2}, {"HTTP/1.1", nginx.http1}} {
		for _, connect := range []bool{false, true} {
			name, host, more := server.name, server.addr, map[string]string{"SSL_CERT_FILE": nginx.authority.File}
			if connect {
				name, host = name+", CONNECT", slackHost
				more["HTTPS_PROXY"] = startProxy(t, server.addr)
			}
			t.Run(name, func(t *testing.T) { postEachWay(t, slack, "https://"+host, more) })
		}
	}
	paths := map[string]bool{}
	for _, line := range nginx.requests(t) {
		words := strings.Fields(line)
		if words[1] != "HTTP/1.1" {
			t.Errorf("a request of notifier: %s, expected HTTP/1.1", line)
		}
		_, port, _ := strings.Cut(nginx.http2, ":")
		if words[0] == port {
			paths[words[2]] = true
		}
	}
	for _, path := range []string{"/api/auth.test", "/api/chat.postMessage", "/api/conversations.history", "/services/T000/B000/fake-secret"} {
		if !paths[path] {
			t.Errorf("no request for %s came to the server with HTTP/2: %v", path, paths)
		}
	}
}

// startProxy starts a proxy that tunnels to an address, whatever the client names, and returns HTTPS_PROXY.
func startProxy(t *testing.T, addr string) string {
	t.Helper()
	user := url.UserPassword("me", "hunter2")
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("me:hunter2"))
	tunnel := kit.TunnelTo(addr)
	proxy := kit.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Proxy-Authorization") != want || r.Host != slackHost+":443" {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		tunnel(w, r)
	}))
	return (&url.URL{Scheme: "http", User: user, Host: proxy}).String()
}

// postEachWay checks the token, posts with it and through the webhook, and finds a post whose response was
// lost.
func postEachWay(t *testing.T, slack *devstack.Slack, base string, more map[string]string) {
	server, err := devstack.StartNATS("127.0.0.1:0", t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = server.Close() })
	slack.Respond(nil) // after a failure of the run before
	env := map[string]string{
		"NATS_URL": server.URL(), "REDIS_URL": redistest.Start(t).Healed(t, "notifier").URL(), "ADMIN_ADDR": "127.0.0.1:0",
		"SLACK_BOT_TOKEN": "xoxb-real", "SLACK_CHANNEL": "C0REAL", "SLACK_API_URL": base + "/api/",
	}
	maps.Copy(env, more)
	worker := startWorker(t, env)
	if out := run(t, env, "check"); !strings.Contains(out, "workspace Fake Workspace") {
		t.Errorf("check does not know the workspace:\n%s", out)
	}
	before := slack.Accepted()
	expectSent(t, env, "plain", false)
	// Slack stores the message and fails then, so the worker looks for it in the channel.
	slack.Respond(devstack.Next(devstack.Response{Accept: true, Status: http.StatusInternalServerError}))
	expectSent(t, env, "found", true)
	if posted := slack.Accepted() - before; posted != 2 {
		t.Errorf("Slack has %d messages, expected 2: the one that was found is not posted again", posted)
	}
	kit.Check(t, worker.Kill())

	delete(env, "SLACK_BOT_TOKEN")
	delete(env, "SLACK_CHANNEL")
	env["SLACK_WEBHOOK_URL"] = base + strings.TrimPrefix(slack.WebhookURL(), slack.URL())
	env["NATS_STREAM"], env["NATS_SUBJECT"] = "HOOK", "hook.>" // nothing of the first worker's
	worker = startWorker(t, env)
	expectSent(t, env, "hooked", false)
	kit.Check(t, worker.Kill())
}

func startWorker(t *testing.T, env map[string]string) *kit.Worker {
	t.Helper()
	worker, err := kit.StartWorker(t, program.Build(t, folder), filepath.Join(t.TempDir(), "log"), env)
	kit.Check(t, err)
	kit.EventuallyNil(t, worker.Ready)
	return worker
}

// expectSent publishes an event and expects it to be sent, as ambiguous or not.
func expectSent(t *testing.T, env map[string]string, category string, ambiguous bool) {
	t.Helper()
	out := run(t, env, "publish", "-wait", "-json", category, "disk full")
	if !strings.Contains(out, `"outcome":"sent"`) || strings.Contains(out, `"ambiguous":true`) != ambiguous {
		t.Errorf("%s: %s, expected that it was sent, ambiguous: %t", category, out, ambiguous)
	}
}
