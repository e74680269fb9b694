package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	cmdline "notifier/internal/cli"
	"notifier/internal/devstack/https"
	"notifier/test/kit"
)

// TestFakeSlackSpeaksHTTPS: with -https it offers HTTP/2 unless told otherwise, and a client needs only the
// file.
func TestFakeSlackSpeaksHTTPS(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "slack.pem") // the second run finds it
	for name, test := range map[string]struct {
		addr  string
		flags []string
		major int
	}{
		"HTTP/2":   {"127.0.0.1:0", nil, 2},
		"HTTP/1.1": {"0.0.0.0:0", []string{"-no-http2"}, 1},
	} {
		p := start(t, append([]string{"dev", "-slack-only", test.addr, "-https", file}, test.flags...)...)
		line := printed(t, p, "fake Slack:")
		url := regexp.MustCompile(`SLACK_WEBHOOK_URL=(https://[^, ]+), SSL_CERT_FILE=` + regexp.QuoteMeta(file) + `$`).FindStringSubmatch(line)
		if url == nil {
			t.Fatalf("%q, expected an https URL and SSL_CERT_FILE", line)
		}
		certificate, err := os.ReadFile(file)
		kit.Check(t, err)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(certificate)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
		response, err := (&http.Client{Transport: transport}).Post(url[1], "application/json", strings.NewReader(`{"text":"hi"}`))
		kit.Check(t, err)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK || response.ProtoMajor != test.major {
			t.Errorf("%s: %s by %s", name, response.Status, response.Proto)
		}
		transport.CloseIdleConnections()
		p.interrupt(t)
	}
}

// TestDevByHTTPS: the worker of dev trusts the fake Slack of the same process. The demo's do as well.
func TestDevByHTTPS(t *testing.T) {
	t.Setenv("ADMIN_ADDR", "")
	file := filepath.Join(t.TempDir(), "slack.pem")
	p := start(t, "dev", "-https", file)
	if got := printed(t, p, "Slack"); !regexp.MustCompile(`^SLACK_API_URL=https://\S+/api/ SSL_CERT_FILE=` + regexp.QuoteMeta(file) + `$`).MatchString(got) {
		t.Errorf("%q, expected how another worker uses the fake Slack", got)
	}
	publish(t, p, "notify.errors", "disk full")
	kit.Eventually(t, "it is sent", func() bool { return len(p.out.Lines("notification sent")) == 1 })
	p.interrupt(t)

	p = start(t, "demo", "-https", file)
	p.ends(t, cmdline.ExitDone)
	if got := p.out.Lines("The fake Slack received 100 messages"); len(got) != 1 {
		t.Errorf("the demo by HTTPS printed %s", p.out.String())
	}
}

func TestHTTPSRefusesBadFlags(t *testing.T) {
	t.Parallel()
	settings := filepath.Join(t.TempDir(), ".env")
	kit.Check(t, os.WriteFile(settings, []byte("SLACK_CHANNEL=#alerts"), 0o600))
	elsewhere := filepath.Join(t.TempDir(), "elsewhere.pem")
	certificate, err := https.SelfSigned("slack.example")
	kit.Check(t, err)
	kit.Check(t, certificate.Save(elsewhere))
	for _, test := range []struct {
		flags []string
		code  int
		text  string
	}{
		{[]string{"-https", elsewhere}, cmdline.ExitFailed, "the certificate is not valid for 127.0.0.1; remove the file to have one made"},
		{[]string{"-no-http2"}, cmdline.ExitUsage, "-no-http2 without -https, expected both"},
		{[]string{"-https", ""}, cmdline.ExitUsage, "-https is empty, expected a file"},
		{[]string{"-https", settings}, cmdline.ExitFailed, "expected a certificate and its key in PEM; remove the file to have one made"},
		{[]string{"-https", "/missing/slack.pem"}, cmdline.ExitFailed, "-https: open /missing/slack.pem"},
		{[]string{"-https", t.TempDir()}, cmdline.ExitFailed, "expected a certificate and its key in PEM"},
	} {
		p := start(t, append([]string{"demo"}, test.flags...)...)
		p.ends(t, test.code)
		if got := p.errOut.Lines(test.text); len(got) != 1 {
			t.Errorf("%q: %q, expected %s", test.flags, p.errOut.String(), test.text)
		}
	}
	if content, err := os.ReadFile(settings); err != nil || !bytes.Equal(content, []byte("SLACK_CHANNEL=#alerts")) {
		t.Errorf("%s is now %q, %v", settings, content, err)
	}
}
