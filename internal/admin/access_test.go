package admin

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
)

func TestTokenIsRequired(t *testing.T) {
	t.Parallel()
	basic := func(user, password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	handler := handlerOf(t, token, fixture())
	for authorization, want := range map[string]int{
		"Bearer " + token: 200, "bearer " + token: 200, basic("anyone", token): 200,
		"": 401, "Bearer ": 401, "Bearer " + token[1:]: 401, token: 401, basic(token, ""): 401, "Basic " + token: 401,
	} {
		for _, path := range []string{"/", "/api/status", "/api/events", "/metrics"} {
			response := get(handler, path, "Authorization", authorization)
			if response.Code != want {
				t.Errorf("%s with %q: %d, expected %d", path, authorization, response.Code, want)
			}
			challenges := strings.Join(response.Header().Values("WWW-Authenticate"), ", ")
			expected := ""
			if want == 401 {
				expected = `Bearer realm="notifier", Basic realm="notifier", charset="UTF-8"`
			}
			if challenges != expected {
				t.Errorf("%s with %q: challenges %q", path, authorization, challenges)
			}
			if strings.Contains(response.Body.String(), token) {
				t.Errorf("%s shows the token", path)
			}
		}
	}
	if code := get(handler, "/nothing").Code; code != 401 {
		t.Errorf("unknown path without the token: %d, expected 401", code)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if code := get(handler, path).Code; code != 200 {
			t.Errorf("%s without the token: %d, expected 200", path, code)
		}
	}
	if code := get(handlerOf(t, "", fixture()), "/metrics").Code; code != 200 {
		t.Errorf("no token configured: %d, expected 200", code)
	}
}

// Refusals carry the security headers too, and no path redirects.
func TestEveryResponseIsGuarded(t *testing.T) {
	t.Parallel()
	handler := handlerOf(t, "", fixture())
	if status := rawStatus(t, start(t, fixture()), "OPTIONS * HTTP/1.1\r\nHost: x"); status != "405" {
		t.Errorf("OPTIONS *: %s, expected 405", status)
	}
	for request, want := range map[string]int{
		"GET /": 200, "GET /api/status": 200, "GET /api/events": 200, "GET /metrics": 200, "HEAD /healthz": 200, "GET /readyz": 200,
		"GET //healthz": 404, "GET /api/../metrics": 404, "GET //rebind.example/": 404, "GET /api": 404,
		"POST /": 405, "DELETE /api/status": 405,
	} {
		method, path, _ := strings.Cut(request, " ")
		response := send(handler, method, path, "Origin", "https://other.example")
		header := response.Header()
		if response.Code != want || header.Get("Location") != "" {
			t.Errorf("%s: %d to %q, expected %d", request, response.Code, header.Get("Location"), want)
		}
		for name, value := range map[string]string{
			"Cache-Control": "no-store", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
			"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Access-Control-Allow-Origin": "",
		} {
			if got := header.Get(name); got != value {
				t.Errorf("%s: %s %q, expected %q", request, name, got, value)
			}
		}
		policy := header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; ") || !strings.HasSuffix(policy, "frame-ancestors 'none'") {
			t.Errorf("%s: Content-Security-Policy %q", request, policy)
		}
		if allow := header.Get("Allow"); (allow == "GET, HEAD") != (want == http.StatusMethodNotAllowed) {
			t.Errorf("%s: Allow %q", request, allow)
		}
	}
}
