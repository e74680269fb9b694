package telemetry

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"notifier/internal/devstack/https"
	"notifier/test/kit"
)

// startCollector starts a collector that speaks HTTPS. It returns its address, the file of its certificate,
// the certificate, and a count of its uploads.
func startCollector(t *testing.T, http1Only bool) (addr, file string, certificate *https.Certificate, uploads *atomic.Int64) {
	t.Helper()
	certificate, err := https.SelfSigned("127.0.0.1")
	kit.Check(t, err)
	file = filepath.Join(t.TempDir(), "collector.pem")
	kit.Check(t, os.WriteFile(file, certificate.PEM(), 0o600))
	uploads = &atomic.Int64{}
	addr = kit.ServeTLS(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		uploads.Add(1)
	}), &https.Server{Certificate: certificate, HTTP1Only: http1Only})
	return addr, file, certificate, uploads
}

func newHTTPSClient(t *testing.T, addr, file, timeout string) *otlpClient {
	t.Helper()
	client, err := newOTLPClient(variables(map[string]string{
		"ENDPOINT": "https://" + addr, "CERTIFICATE": file, "TIMEOUT": timeout,
	}))
	kit.Check(t, err)
	t.Cleanup(func() { _ = client.Stop(t.Context()) })
	return client
}

// TestAuthoritiesOfTheCollector: an unusable SSL_CERT_FILE is blamed only where it would count.
func TestAuthoritiesOfTheCollector(t *testing.T) {
	t.Setenv("SSL_CERT_FILE", "/missing.pem")
	addr, _, _, _ := startCollector(t, false)
	_, other, _, _ := startCollector(t, false)
	for file, blamed := range map[string]bool{"": true, other: false} {
		err := newHTTPSClient(t, addr, file, "60000").upload(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), "unknown authority") {
			t.Fatalf("%q: %v, expected an unknown authority", file, err)
		}
		if strings.Contains(err.Error(), "SSL_CERT_FILE") != blamed {
			t.Errorf("%q: %v; blames SSL_CERT_FILE: expected %v", file, err, blamed)
		}
	}
}

// TestSpansAreUploadedByHTTPS: collectors and proxies may offer HTTP/2.
func TestSpansAreUploadedByHTTPS(t *testing.T) {
	for name, http1Only := range map[string]bool{"HTTP/2 offered": false, "HTTP/1.1 alone": true} {
		t.Run(name, func(t *testing.T) {
			addr, file, certificate, uploads := startCollector(t, http1Only)
			kit.Check(t, newHTTPSClient(t, addr, file, "60000").UploadTraces(t.Context(), oneSpan()))

			proxied := newHTTPSClient(t, "collector.test", file, "60000")
			proxy := kit.ServeTLS(t, kit.TunnelTo(addr), &https.Server{Certificate: certificate, HTTP1Only: http1Only})
			transport := proxied.http.Transport.(*http.Transport)
			transport.Proxy = http.ProxyURL(&url.URL{Scheme: "https", Host: proxy})
			transport.TLSClientConfig.ServerName = "127.0.0.1" // of the proxy's and the collector's certificate
			kit.Check(t, proxied.UploadTraces(t.Context(), oneSpan()))
			if got := uploads.Load(); got != 2 {
				t.Errorf("the collector has %d uploads, expected 2", got)
			}
		})
	}
}

// TestResponseIsNotQuoted: a collector may echo the headers, which authenticate.
func TestResponseIsNotQuoted(t *testing.T) {
	for _, response := range []string{"SeCrEt", "HTTP/1.1 SeCrEt", "HTTP/1.1 200 OK\r\nSeCrEt", "HTTP/1.1 200 OK\r\nContent-Length: SeCrEt"} {
		addr := kit.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			connection, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(connection, response+"\r\n\r\n")
			_ = connection.Close()
		}))
		client, err := newOTLPClient(variables(map[string]string{"ENDPOINT": "http://" + addr, "TIMEOUT": "300"}))
		kit.Check(t, err)
		if err := client.UploadTraces(t.Context(), oneSpan()); err == nil || strings.Contains(err.Error(), "SeCrEt") {
			t.Errorf("%q: the error %v, expected one without the response", response, err)
		}
		_ = client.Stop(t.Context())
	}
}

// TestADeadConnectionCostsOneUpload: nothing says that a connection is dead which a firewall has dropped.
func TestADeadConnectionCostsOneUpload(t *testing.T) {
	addr, file, _, uploads := startCollector(t, false)
	proxy := kit.StartFreezingProxy(t, addr)
	client := newHTTPSClient(t, proxy.Addr, file, "2000")
	kit.Check(t, client.UploadTraces(t.Context(), oneSpan()))
	if proxy.Freeze() == 0 {
		t.Fatal("no connection is open to be frozen")
	}
	if err := client.UploadTraces(t.Context(), oneSpan()); err == nil {
		t.Error("an upload on a dead connection has succeeded")
	}
	kit.Check(t, client.UploadTraces(t.Context(), oneSpan()))
	if got := uploads.Load(); got != 2 {
		t.Errorf("the collector has %d uploads, expected 2", got)
	}
}
