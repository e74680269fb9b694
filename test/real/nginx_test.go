package real

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// slackHost is the name in a server's certificate that only the proxy of the tests can resolve.
const slackHost = "slack.test"

// nginxConf has three servers that stand before the fake Slack: one with HTTP/2, as Slack has, one without,
// and one that admits a post a second, and refuses others with a page of HTML and no Retry-After. All
// compress, and close a connection after three requests. From 1.25 on nginx warns that "listen ... http2" is
// deprecated; 1.22 knows no other form.
const nginxConf = `daemon off;
{{user}}
worker_processes 1;
pid {{folder}}/pid;
error_log stderr warn;
events {}
http {
  log_format requests '$server_port $server_protocol $uri $status $pid $connection_requests';
  access_log {{folder}}/access.log requests;
  client_body_temp_path {{folder}}/body;
  proxy_temp_path {{folder}}/proxy;
  fastcgi_temp_path {{folder}}/fastcgi;
  uwsgi_temp_path {{folder}}/uwsgi;
  scgi_temp_path {{folder}}/scgi;
  gzip on;
  gzip_min_length 1;
  gzip_types application/json text/plain;
  keepalive_requests 3;
  ssl_certificate {{certificate}};
  ssl_certificate_key {{key}};
  limit_req_zone $binary_remote_addr zone=posts:1m rate=1r/s;
  limit_req_status 429;
  server { listen {{http2}} ssl http2; location / { proxy_pass {{slack}}; } }
  server { listen {{http1}} ssl; location / { proxy_pass {{slack}}; } }
  server {
    listen {{limited}} ssl http2;
    location / { proxy_pass {{slack}}; }
    location /api/chat.postMessage { limit_req zone=posts; proxy_pass {{slack}}; }
  }
}
`

// nginx stands before a fake Slack.
type nginx struct {
	path, folder          string
	certificate, key      string
	authority             *kit.Authority
	http2, http1, limited string // addresses of its servers
}

// keepNginx runs nginx until the standard input ends: with the test at the latest, however that ends. Nginx's
// workers outlive a master that is killed.
const keepNginx = `exec 3<&0; "$@" </dev/null 3<&- & pid=$!; (cat <&3 >/dev/null; kill -TERM $pid 2>/dev/null) & wait $pid`

func startNginx(t *testing.T, path, slackURL string) *nginx {
	t.Helper()
	n := &nginx{
		path: path, folder: t.TempDir(), authority: kit.NewAuthority(t, "ours"),
		http2: kit.FreeAddr(t), http1: kit.FreeAddr(t), limited: kit.FreeAddr(t),
	}
	n.certificate, n.key = n.authority.Issue(t, slackHost, "127.0.0.1")
	n.configure(t, slackURL)
	command := exec.Command("sh", append([]string{"-c", keepNginx, "sh", path}, n.arguments()...)...)
	var said kit.Output
	command.Stderr = &said
	input, err := command.StdinPipe()
	kit.Check(t, err)
	kit.Check(t, command.Start())
	t.Cleanup(func() {
		_ = input.Close()
		_ = command.Wait()
		if t.Failed() {
			t.Logf("nginx: %s", said.String())
		}
	})
	for addr, major := range map[string]int{n.http2: 2, n.http1: 1, n.limited: 2} {
		n.expectProtocol(t, addr, major)
	}
	return n
}

func (n *nginx) arguments() []string {
	return []string{"-e", "stderr", "-p", n.folder, "-c", filepath.Join(n.folder, "nginx.conf")}
}

// configure writes the configuration, by which all servers stand before one address.
func (n *nginx) configure(t *testing.T, slackURL string) {
	t.Helper()
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;" // else its workers could not use the folder of the test
	}
	conf := strings.NewReplacer("{{user}}", user, "{{folder}}", n.folder, "{{certificate}}", n.certificate, "{{key}}", n.key,
		"{{http2}}", n.http2, "{{http1}}", n.http1, "{{limited}}", n.limited, "{{slack}}", slackURL).Replace(nginxConf)
	kit.Check(t, os.WriteFile(filepath.Join(n.folder, "nginx.conf"), []byte(conf), 0o600))
}

// reload replaces nginx's worker. The old one finishes its requests, the new one has the new configuration.
func (n *nginx) reload(t *testing.T) {
	t.Helper()
	if out, err := exec.Command(n.path, append(n.arguments(), "-s", "reload")...).CombinedOutput(); err != nil {
		t.Fatalf("nginx -s reload: %v\n%s", err, out)
	}
}

// expectProtocol makes a request that offers both versions of HTTP, and expects one of them, and a compressed
// response.
func (n *nginx) expectProtocol(t *testing.T, addr string, major int) {
	t.Helper()
	response := n.healthz(t, addr)
	if response.ProtoMajor != major || !response.Uncompressed {
		t.Fatalf("nginx speaks %s at %s, compressed: %t; expected HTTP/%d and true", response.Proto, addr, response.Uncompressed, major)
	}
}

// healthz waits for a response. It has no body any more.
func (n *nginx) healthz(t *testing.T, addr string) (response *http.Response) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: n.authority.Pool()}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	kit.EventuallyNil(t, func() (err error) {
		response, err = (&http.Client{Transport: transport}).Get("https://" + addr + "/healthz")
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
		return err
	})
	return response
}

// request is one of notifier's in nginx's log.
type request struct {
	port, protocol, path, status, worker string
	ofConnection                         int // 1 for the first one on a connection
}

func (n *nginx) requests(t *testing.T) (requests []request) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(n.folder, "access.log"))
	kit.Check(t, err)
	for line := range strings.Lines(string(log)) {
		words := strings.Fields(line)
		if !strings.HasSuffix(line, "\n") || words[2] == "/healthz" {
			continue
		}
		number, err := strconv.Atoi(words[5])
		kit.Check(t, err)
		requests = append(requests, request{words[0], words[1], words[2], words[3], words[4], number})
	}
	return requests
}

// TestNginx: notifier's commands and a worker reach Slack through nginx, with and without HTTP/2, directly
// and through a proxy that wants a password.
func TestNginx(t *testing.T) {
	t.Parallel()
	path := nginxRow.need(t)
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
	for _, request := range nginx.requests(t) {
		if request.protocol != "HTTP/1.1" {
			t.Errorf("a request of notifier: %+v, expected HTTP/1.1", request)
		}
		if strings.HasSuffix(nginx.http2, ":"+request.port) {
			paths[request.path] = true
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

// TestNginxInTrouble: no event is lost, nor sent twice unless its line calls it ambiguous, while nginx closes
// connections after a few requests, reloads, has no server behind it, and limits the rate.
func TestNginxInTrouble(t *testing.T) {
	t.Parallel()
	path := nginxRow.need(t)
	slack, env := services(t)
	nginx := startNginx(t, path, slack.URL())
	env["SSL_CERT_FILE"] = nginx.authority.File
	env["SLACK_API_URL"] = "https://" + nginx.http2 + "/api/"
	env["SLACK_ROUTES"] = "a=C0A,b=C0B,c=C0C,d=C0D" // as many posts at a time
	worker := startWorker(t, env)
	categories := []string{"a", "b", "c", "d"}
	publish := func(e *events, n int) {
		for i := range n {
			e.publish(t, categories[i%len(categories)], 1)
		}
	}
	all := &events{js: kit.JetStream(t, env["NATS_URL"])}

	// Connections end in order, so no post is ambiguous.
	publish(all, 24)
	if ambiguous := all.account(t, worker, slack); ambiguous > 0 {
		t.Errorf("%d of %d events are ambiguous, expected none", ambiguous, len(all.ids))
	}
	most := slices.MaxFunc(nginx.requests(t), func(a, b request) int { return a.ofConnection - b.ofConnection })
	if most.ofConnection != 3 {
		t.Errorf("a connection had up to %d requests, expected 3", most.ofConnection)
	}

	t.Run("reloads", func(t *testing.T) {
		slack.Respond(devstack.Always(devstack.Response{Delay: 20 * time.Millisecond})) // posts are under way then
		reloaded := &events{js: all.js}
		workers := func() int {
			seen := map[string]bool{}
			for _, request := range nginx.requests(t) {
				seen[request.worker] = true
			}
			return len(seen)
		}
		for range 8 {
			before := workers()
			publish(reloaded, 16)
			nginx.reload(t)
			kit.Eventually(t, "a new worker of nginx has a request", func() bool {
				publish(reloaded, 4)
				return workers() > before
			})
		}
		ambiguous := reloaded.account(t, worker, slack)
		t.Logf("%d events, 8 reloads, %d ambiguous", len(reloaded.ids), ambiguous)
	})

	t.Run("502", func(t *testing.T) {
		slack.Respond(nil)
		broken := &events{js: all.js}
		nginx.configure(t, "http://"+kit.FreeAddr(t))
		nginx.reload(t)
		kit.Eventually(t, "nginx says 502", func() bool { return nginx.healthz(t, nginx.http2).StatusCode == http.StatusBadGateway })
		kit.EventuallyNil(t, func() error {
			publish(broken, 4) // nginx's old worker serves its connections for another 100 ms
			if out := run(t, env, "status"); !strings.Contains(out, "http_502") {
				return fmt.Errorf("status does not say http_502:\n%s", out)
			}
			return nil
		})
		nginx.configure(t, slack.URL())
		nginx.reload(t)
		if broken.account(t, worker, slack) == 0 {
			t.Error("no event is ambiguous, although a 502 does not say whether Slack has the message")
		}
		if log, err := os.ReadFile(worker.Log); err != nil || strings.Contains(string(log), "<html>") {
			t.Errorf("the log has nginx's page, %v", err)
		}
	})

	t.Run("429", func(t *testing.T) {
		// A deployment of its own: the pauses concern all posts.
		slack, env := services(t)
		nginx := startNginx(t, path, slack.URL())
		env["SSL_CERT_FILE"] = nginx.authority.File
		env["SLACK_API_URL"] = "https://" + nginx.limited + "/api/"
		worker := startWorker(t, env)
		limited := &events{js: kit.JetStream(t, env["NATS_URL"])}
		limited.publish(t, "limited", 4)
		if ambiguous := limited.account(t, worker, slack); ambiguous > 0 {
			t.Errorf("%d events are ambiguous, expected none: nginx has not passed on the posts that it refused", ambiguous)
		}
		refused := func(r request) bool { return r.status == "429" }
		if !slices.ContainsFunc(nginx.requests(t), refused) {
			t.Error("nginx has refused nothing")
		}
	})
}
