package admin_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"notifier/internal/admin"
	"notifier/test/kit"
)

const token = "correct-horse-battery"

// guarded is a server with everything on, that listens on 127.0.0.1.
func guarded(t *testing.T, config admin.Config) *admin.Server {
	t.Helper()
	probes := probesOf(one)
	probes.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "metrics") })
	probes.Ready = func(context.Context) []string { return []string{"nats: nats.internal:4222 refuses"} }
	probes.Waits = func() []string { return []string{"waiting for nats.internal:4222"} }
	config.Addr = "127.0.0.1:0"
	server, err := admin.Start(config, probes)
	kit.Check(t, err)
	t.Cleanup(func() { kit.Check(t, server.Shutdown(context.Background())) })
	return server
}

// send sends a request as it is written here, and returns the answer and its body.
func send(t *testing.T, server *admin.Server, lines ...string) (*http.Response, string) {
	t.Helper()
	connection, err := net.Dial("tcp", server.Addr())
	kit.Check(t, err)
	defer func() { _ = connection.Close() }()
	_, err = fmt.Fprint(connection, strings.Join(lines, "\r\n"), "\r\nConnection: close\r\n\r\n")
	kit.Check(t, err)
	method, _, _ := strings.Cut(lines[0], " ")
	response, err := http.ReadResponse(bufio.NewReader(connection), &http.Request{Method: method})
	kit.Check(t, err)
	defer func() { _ = response.Body.Close() }()
	var body strings.Builder
	_, err = bufio.NewReader(response.Body).WriteTo(&body)
	kit.Check(t, err)
	return response, body.String()
}

// A page of another site can make its own name resolve to this server's address.
func TestOnlyKnownNamesAreAnswered(t *testing.T) {
	own, err := os.Hostname()
	kit.Check(t, err)
	server := guarded(t, admin.Config{Hosts: []string{"Notifier.example.org", "*.svc.cluster.local"}})
	for host, want := range map[string]int{
		"127.0.0.1:8080": 200, "127.0.0.1": 200, "[::1]:8080": 200, "[::1]": 200, "10.1.2.3:8080": 200, "192.0.2.1": 200,
		"localhost:8080": 200, "LOCALHOST": 200, "a.localhost": 200, own: 200, own + ":8080": 200,
		"notifier.example.org": 200, "notifier.example.org.:80": 200, "a.b.svc.cluster.local:8080": 200,
		"rebind.example": 421, "rebind.example:8080": 421, "127.0.0.1.rebind.example": 421, "localhost.rebind.example": 421,
		"a.notifier.example.org": 421, "example.org": 421, "svc.cluster.local": 421, ".svc.cluster.local": 421, "xsvc.cluster.local": 421,
		own + ".rebind.example": 421, "[::1].rebind.example": 421, ".": 421, ":8080": 421, "notifier": 421,
	} {
		for _, path := range []string{"/", "/api/status", "/metrics", "/nothing"} {
			expected := want
			if path == "/nothing" && want == 200 {
				expected = 404
			}
			if response, _ := send(t, server, "GET "+path+" HTTP/1.1", "Host: "+host); response.StatusCode != expected {
				t.Errorf("%s of %q: %d, expected %d", path, host, response.StatusCode, expected)
			}
		}
	}
	if response, _ := send(t, server, "GET http://rebind.example/metrics HTTP/1.1", "Host: 127.0.0.1"); response.StatusCode != 421 {
		t.Errorf("a name in the request line: %d, expected 421", response.StatusCode)
	}
	if response, _ := send(t, server, "GET /metrics HTTP/1.0"); response.StatusCode != 200 {
		t.Errorf("no Host at all, which no browser sends: %d, expected 200", response.StatusCode)
	}
}

// Whoever probes a worker may use any name and needs no token. The reasons are for those who have both.
func TestProbesAreAnsweredUnderAnyName(t *testing.T) {
	const bearer = "Authorization: Bearer " + token
	all := "nats: nats.internal:4222 refuses\nwaiting for nats.internal:4222\n"
	for _, test := range []struct{ token, host, authorization, want string }{
		{"", "127.0.0.1", "Accept: */*", all},
		{"", "rebind.example", "Accept: */*", "not ready\n"},
		{token, "127.0.0.1", bearer, all},
		{token, "127.0.0.1", "Accept: */*", "not ready\n"},
		{token, "127.0.0.1", bearer + "x", "not ready\n"},
		{token, "rebind.example", bearer, "not ready\n"},
	} {
		server := guarded(t, admin.Config{Token: test.token})
		response, body := send(t, server, "GET /readyz HTTP/1.1", "Host: "+test.host, test.authorization)
		if response.StatusCode != 503 || body != test.want {
			t.Errorf("/readyz with %+v: %d %q, expected 503", test, response.StatusCode, body)
		}
		if response, body := send(t, server, "GET /healthz HTTP/1.1", "Host: "+test.host); response.StatusCode != 200 || body != "ok\n" {
			t.Errorf("/healthz of %s: %d %q, expected 200 ok", test.host, response.StatusCode, body)
		}
	}
}

func TestTheTokenIsNeededForAllButProbes(t *testing.T) {
	server := guarded(t, admin.Config{Token: token})
	basic := func(user, password string) string {
		request, err := http.NewRequest(http.MethodGet, "/", nil)
		kit.Check(t, err)
		request.SetBasicAuth(user, password)
		return request.Header.Get("Authorization")
	}
	for _, test := range []struct {
		authorization string
		want          int
	}{
		{"Bearer " + token, 200}, {"bearer " + token, 200}, {basic("", token), 200}, {basic("anybody", token), 200},
		{"", 401}, {"Bearer", 401}, {"Bearer ", 401}, {"Bearer " + token[1:], 401}, {"Bearer " + token + "x", 401}, {"Bearer  " + token, 401},
		{token, 401}, {"Digest " + token, 401}, {basic(token, ""), 401}, {basic("", ""), 401}, {"Basic " + token, 401},
	} {
		for _, path := range []string{"/", "/api/status", "/metrics"} {
			lines := []string{"GET " + path + " HTTP/1.1", "Host: 127.0.0.1"}
			if test.authorization != "" {
				lines = append(lines, "Authorization: "+test.authorization)
			}
			response, body := send(t, server, lines...)
			if response.StatusCode != test.want {
				t.Errorf("%s with %q: %d, expected %d", path, test.authorization, response.StatusCode, test.want)
			}
			if asked := strings.Join(response.Header.Values("WWW-Authenticate"), ", "); (test.want == 401) != (asked == `Bearer realm="notifier", Basic realm="notifier", charset="UTF-8"`) {
				t.Errorf("%s with %q asks for %q", path, test.authorization, asked)
			}
			if strings.Contains(body, token) {
				t.Errorf("%s shows the token", path)
			}
		}
	}
	if response, _ := send(t, server, "GET /nothing HTTP/1.1", "Host: 127.0.0.1"); response.StatusCode != 401 {
		t.Errorf("without the token it shows which paths exist: %d, expected 401", response.StatusCode)
	}
}

// Every answer has the headers, also one that refuses; and none leads to another place.
func TestEveryAnswerIsGuarded(t *testing.T) {
	server := guarded(t, admin.Config{})
	for _, test := range []struct {
		request string
		want    int
	}{
		{"GET / HTTP/1.1", 200}, {"GET /api/status HTTP/1.1", 200}, {"GET /metrics HTTP/1.1", 200}, {"HEAD /healthz HTTP/1.1", 200}, {"GET /readyz HTTP/1.1", 503},
		{"GET //healthz HTTP/1.1", 404}, {"GET /./metrics HTTP/1.1", 404}, {"GET /api/../metrics HTTP/1.1", 404}, {"GET /metrics/ HTTP/1.1", 404},
		{"GET //rebind.example/ HTTP/1.1", 404}, {"GET /metrics%2f.. HTTP/1.1", 404}, {"GET /healthz; HTTP/1.1", 404},
		{"POST /metrics HTTP/1.1", 405}, {"OPTIONS * HTTP/1.1", 405}, {"TRACE / HTTP/1.1", 405}, {"CONNECT rebind.example:443 HTTP/1.1", 405},
		{"GET http://rebind.example/ HTTP/1.1", 421},
	} {
		response, _ := send(t, server, test.request, "Host: 127.0.0.1")
		if response.StatusCode != test.want || response.Header.Get("Location") != "" {
			t.Errorf("%s: %d to %q, expected %d", test.request, response.StatusCode, response.Header.Get("Location"), test.want)
		}
		for name, value := range map[string]string{
			"Cache-Control": "no-store", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
			"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
		} {
			if got := response.Header.Get(name); got != value {
				t.Errorf("%s: %s %q, expected %q", test.request, name, got, value)
			}
		}
		if policy := response.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; ") || !strings.HasSuffix(policy, "frame-ancestors 'none'") {
			t.Errorf("%s: Content-Security-Policy %q", test.request, policy)
		}
		if response.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: other sites may read it", test.request)
		}
	}
}
