package preflight

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"notifier/internal/cause"
	"notifier/internal/devstack/https"
	"notifier/internal/slackout"
	"notifier/test/kit"
)

// TestFailedConnections: the remedy is an authority's file only if that is at fault.
func TestFailedConnections(t *testing.T) {
	t.Parallel()
	expired, err := https.Expired("127.0.0.1")
	kit.Check(t, err)
	named, err := https.SelfSigned("server.example")
	kit.Check(t, err)
	good, err := https.SelfSigned("127.0.0.1")
	kit.Check(t, err)
	serve := func(certificate *https.Certificate) string {
		return kit.ServeTLS(t, http.NotFoundHandler(), &https.Server{Certificate: certificate})
	}
	file := func(certificate *https.Certificate) string {
		path := filepath.Join(t.TempDir(), "ca.pem")
		kit.Check(t, os.WriteFile(path, certificate.PEM(), 0o600))
		return path
	}
	for name, test := range map[string]struct{ addr, ca, text string }{
		"expired":      {serve(expired), file(expired), "; renew the server's certificate, or correct this machine's clock"},
		"another name": {serve(named), file(named), "; give the server a certificate for 127.0.0.1, or put a name that it has into NEIGHBOUR_URL"},
		"unknown":      {serve(good), file(named), "; set NEIGHBOUR_TLS_CA to the authority that signed the server's certificate, or add it there"},
		"gone":         {"127.0.0.1:1", file(named), "; check NEIGHBOUR_URL, and whether the server is running"},
		"no host":      {"server.invalid:1", file(named), "; check NEIGHBOUR_URL, and the network's DNS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nats := found(t, natsGroup(parsed(t, func(env map[string]string) {
				env["NATS_URL"], env["NATS_TLS_CA"] = "tls://"+test.addr, test.ca
			})))
			want(t, nats, "nats", Fail, strings.ReplaceAll(test.text, "NEIGHBOUR", "NATS"))
			redis := redisRows(t, func(env map[string]string) {
				env["REDIS_URL"], env["REDIS_TLS_CA"] = "rediss://"+test.addr, test.ca
			})
			want(t, redis, "redis", Fail, strings.ReplaceAll(test.text, "NEIGHBOUR", "REDIS"))
		})
	}
}

// TestRareFailures have advice, too.
func TestRareFailures(t *testing.T) {
	t.Parallel()
	certificate := func(reason x509.InvalidReason) error {
		return &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: reason}}
	}
	const another = "the server's certificate is not valid: have its issuer make another"
	for _, test := range []struct {
		err  error
		want string
	}{
		{certificate(x509.IncompatibleUsage), another},
		{certificate(x509.CANotAuthorizedForThisName), another},
		{certificate(x509.NotAuthorizedToSign), another},
		{
			&net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EACCES)},
			"check the permissions of the socket in REDIS_URL and of its folders",
		},
	} {
		if got := redisAdvice(fmt.Errorf("wrapped: %w", test.err)); got != test.want {
			t.Errorf("%v: %q, expected %q", test.err, got, test.want)
		}
	}
	if got := natsAdvice(certificate(x509.IncompatibleUsage)); got != another {
		t.Errorf("NATS: %q, expected %q", got, another)
	}
}

// TestSlackAdvice: each failure on the way to Slack has its own remedy.
func TestSlackAdvice(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		code, advice string
		cause        cause.Kind
	}{
		{"connection_refused", "start the proxy, or see its log; or correct HTTPS_PROXY", cause.Proxy},
		{"connection_refused", "check the network", cause.Refused},
		{"tls_error", "correct this machine's clock", cause.Expired},
		{"tls_error", "another server replies in place of Slack", cause.OtherName},
		{"tls_error", "name its authority's file in SSL_CERT_FILE", cause.UnknownAuthority},
		{"tls_error", "correct SSL_CERT_FILE", cause.NoRoots},
		{"tls_error", "a proxy without it needs http:// in HTTPS_PROXY", cause.NotTLS},
		{"tls_error", "check SLACK_API_URL, and the proxy", ""},
		{"network_error", "turn HTTP/2 off", cause.HTTP2},
		{"network_error", "check the network", cause.NoRoute},
		{"network_error", "raise the limit (ulimit -n)", cause.TooManyFiles},
		{"dns_error", "check the network", cause.UnknownHost},
		{"timeout", "check the network, and HTTPS_PROXY", ""},
		{"connection_reset", "check the network, and HTTPS_PROXY", ""},
		{"timeout", "start the proxy, or see its log", cause.Proxy},
		{"connection_reset", "start the proxy, or see its log", cause.Proxy},
		{"proxy_401", "check its user and password", ""},
		{"proxy_403", "check its user and password", ""},
		{"proxy_407", "check its user and password", ""},
		{"proxy_405", "takes no CONNECT", ""},
		{"proxy_500", "the proxy cannot reach Slack", ""},
		{"proxy_503", "the proxy cannot reach Slack", ""},
		{"http_301", "a redirect", ""},
		{"http_302", "a redirect", ""},
		{"http_303", "a redirect", ""},
		{"http_307", "a redirect", ""},
		{"http_308", "a redirect", ""},
		{"http_400", "not its port for HTTPS", ""},
		{"http_401", "check its user and password", ""},
		{"http_403", "check its user and password", ""},
		{"http_404", "set SLACK_API_URL", ""},
		{"http_405", "replies in place of Slack", ""},
		{"http_407", "check its user and password", ""},
		{"http_502", "see https://slack-status.com", ""},
	} {
		err := fmt.Errorf("wrapped: %w", &slackout.Error{Code: test.code, Cause: test.cause})
		if got := slackAdvice(err); !strings.Contains(got, test.advice) {
			t.Errorf("%s (%s): %q, expected %q", test.code, test.cause, got, test.advice)
		}
		if strings.Contains(slackAdvice(err), "password") != strings.Contains(test.advice, "password") {
			t.Errorf("%s (%s): %q is about credentials", test.code, test.cause, slackAdvice(err))
		}
	}
}

// TestStatusOfSlack: a server in place of Slack is met as a worker would meet it.
func TestStatusOfSlack(t *testing.T) {
	t.Parallel()
	for status, text := range map[int]string{
		http.StatusFound: "http_302; a redirect, which is not followed", http.StatusBadRequest: "http_400; this is not Slack's Web API",
		http.StatusForbidden: "http_403; a proxy or a firewall refuses", http.StatusBadGateway: "http_502; Slack fails",
	} {
		addr := kit.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://login.example/"+secret)
			w.WriteHeader(status)
		}))
		rows := found(t, slackGroup(parsed(t, func(env map[string]string) { env["SLACK_API_URL"] = "http://" + addr + "/api/" })))
		want(t, rows, "slack", Fail, text)
	}
}
