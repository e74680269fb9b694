package telemetry

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"notifier/test/kit"
)

// variables are OTEL_EXPORTER_OTLP_* variables by their last words, for all signals.
func variables(values map[string]string) func(string) (string, string) {
	return func(suffix string) (string, string) { return "OTEL_EXPORTER_OTLP_" + suffix, values[suffix] }
}

func oneSpan() []*tracepb.ResourceSpans {
	return []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{Name: "notification"}}}}}}
}

func TestSpansAreUploadedAsTheVariablesAsk(t *testing.T) {
	requests := make(chan *http.Request, 1)
	bodies := make(chan []byte, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		unpacked, err := gzip.NewReader(r.Body)
		kit.Check(t, err)
		body, err := io.ReadAll(unpacked)
		kit.Check(t, err)
		requests <- r
		bodies <- body
	}))
	t.Cleanup(collector.Close)
	client, err := newOTLPClient(variables(map[string]string{
		"ENDPOINT": strings.Replace(collector.URL, "http://", "http://me:word@", 1) + "/otlp", "HEADERS": "Api-Key=a%20b, other = c", "COMPRESSION": "gzip", "PROTOCOL": "http/protobuf",
	}))
	kit.Check(t, err)
	kit.Check(t, client.UploadTraces(t.Context(), oneSpan()))
	r, body := <-requests, <-bodies
	user, password, _ := r.BasicAuth()
	got := []string{r.Method, r.URL.Path, r.Header.Get("Content-Type"), r.Header.Get("Api-Key"), r.Header.Get("Other"), user, password}
	want := []string{"POST", "/otlp/v1/traces", "application/x-protobuf", "a b", "c", "me", "word"}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Errorf("the request (-want +got):\n%s", difference)
	}
	var received tracepb.TracesData
	kit.Check(t, proto.Unmarshal(body, &received))
	if name := received.ResourceSpans[0].ScopeSpans[0].Spans[0].Name; name != "notification" {
		t.Errorf("span %q", name)
	}
}

// A redirect is final: it would take the headers along.
func TestAnUploadIsTriedAgainWhereThatMayHelp(t *testing.T) {
	for name, test := range map[string]struct {
		status   int
		attempts int64
		want     string
	}{
		"too many": {http.StatusTooManyRequests, 2, ""}, "unavailable": {http.StatusServiceUnavailable, 2, ""},
		"forbidden": {http.StatusForbidden, 1, "HTTP status 403"}, "redirect": {http.StatusFound, 1, "HTTP status 302"},
	} {
		t.Run(name, func(t *testing.T) {
			var attempts atomic.Int64
			collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if attempts.Add(1) == 1 {
					w.Header().Set("Location", "/other")
					w.WriteHeader(test.status)
				}
			}))
			t.Cleanup(collector.Close)
			client, err := newOTLPClient(variables(map[string]string{"ENDPOINT": collector.URL}))
			kit.Check(t, err)
			err = client.UploadTraces(t.Context(), oneSpan())
			if (err == nil) != (test.want == "") || err != nil && err.Error() != collector.URL+": "+test.want || attempts.Load() != test.attempts {
				t.Errorf("%v after %d attempts, expected %q after %d", err, attempts.Load(), test.want, test.attempts)
			}
		})
	}
}

// hidden stands for a secret, in the variables and in the collector's responses.
const hidden = "hunter2marker"

func TestErrorsOfUploadsShowNoSecret(t *testing.T) {
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no access for "+r.Header.Get("Authorization")+hidden, http.StatusUnauthorized)
	}))
	t.Cleanup(collector.Close)
	for name, host := range map[string]string{
		"refused": strings.TrimPrefix(collector.URL, "http://"), "nobody there": kit.FreeAddr(t), "no such host": "collector.invalid:4318",
	} {
		client, err := newOTLPClient(variables(map[string]string{
			"ENDPOINT": "http://" + hidden + ":" + hidden + "@" + host + "/" + hidden + "?key=" + hidden, "HEADERS": "Authorization=" + hidden, "TIMEOUT": "200",
		}))
		kit.Check(t, err)
		err = client.UploadTraces(context.Background(), oneSpan())
		if err == nil || strings.Contains(err.Error(), hidden) || !strings.HasPrefix(err.Error(), "http://"+host+": ") {
			t.Errorf("%s: %v, expected an error that names the host and no secret", name, err)
		}
	}
}

func TestVariablesOfTheExporterThatAreWrongAreNamedWithoutTheirValue(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	kit.Check(t, os.WriteFile(file, []byte(hidden), 0o600))
	for suffix, values := range map[string][]string{
		"PROTOCOL": {"grpc", hidden}, "ENDPOINT": {"collector:4318", "http://me:" + hidden + "@host/%zz", "http://"},
		"HEADERS": {"Authorization: Bearer " + hidden, "a=" + hidden + "%zz", "=" + hidden, "a=" + hidden + "%0d%0ab: c"},
		"TIMEOUT": {hidden, "0"}, "COMPRESSION": {hidden}, "CERTIFICATE": {file, filepath.Join(t.TempDir(), "none")},
		"CLIENT_CERTIFICATE": {file},
	} {
		for _, value := range values {
			client, err := newOTLPClient(variables(map[string]string{suffix: value}))
			if client != nil || err == nil || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_"+suffix) || strings.Contains(err.Error(), hidden) {
				t.Errorf("%s=%q: %v, expected an error that names the variable and does not show the value", suffix, value, err)
			}
		}
	}
}
