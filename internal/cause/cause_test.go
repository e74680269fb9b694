package cause

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"notifier/internal/devstack/https"
)

func TestText(t *testing.T) {
	dial := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, Err: err}
	}
	for want, err := range map[string]error{
		"connection refused": dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)),
		"no route to host":   &url.Error{Op: "Post", URL: "https://hooks.test/SeCrEt", Err: dial(syscall.EHOSTUNREACH)},
		"remote error: tls: handshake failure": &url.Error{
			Op: "Post", URL: "https://hooks.test/SeCrEt", Err: &net.OpError{Op: "remote error", Err: errors.New("tls: handshake failure")},
		},
		"proxy: connection refused":                     &net.OpError{Op: "proxyconnect", Net: "tcp", Err: syscall.ECONNREFUSED},
		"proxy 127.0.0.1:1: connection refused":         &net.OpError{Op: "proxyconnect", Net: "tcp", Err: dial(syscall.ECONNREFUSED)},
		"lookup slack.test: no such host":               dial(&net.DNSError{Err: "no such host", Name: "slack.test", UnwrapErr: errors.New("inner")}),
		"open /slack.pem: permission denied":            x509.SystemRootsError{Err: &fs.PathError{Op: "open", Path: "/slack.pem", Err: syscall.EACCES}},
		"x509: certificate signed by unknown authority": &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
		"x509: the certificate is not valid for slack.com": &tls.CertificateVerificationError{Err: x509.HostnameError{
			Certificate: &x509.Certificate{DNSNames: []string{"SeCrEt.example"}}, Host: "slack.com",
		}},
		"proxy: x509: the certificate is not valid for slack.com": &net.OpError{Op: "proxyconnect", Net: "tcp", Err: x509.HostnameError{
			Certificate: &x509.Certificate{DNSNames: []string{"SeCrEt.example"}}, Host: "slack.com",
		}},
		"malformed HTTP response: a frame of HTTP/2": fmt.Errorf("broken: %w", errors.New(`malformed HTTP response "\x00\x00\x1e"`)),
		"malformed HTTP response":                    errors.New(`malformed HTTP response "POST /SeCrEt \"and\" more"`),
		"malformed MIME header line":                 textproto.ProtocolError(`malformed MIME header line: "text=SeCrEt"`),
		"unknown authority":                          errors.New(`unknown authority (possibly because of "SeCrEt" and "more")`),
		"the cause":                                  fmt.Errorf("%w: %w", errors.New("a sentinel"), errors.New("the cause")),
		"joined":                                     errors.Join(errors.New("first"), errors.New("joined")),
	} {
		if got := Text(err); got != want {
			t.Errorf("Text(%v) = %q, expected %q", err, got, want)
		}
	}
}

// TestUnusableRoots: Go ignores a missing SSL_CERT_FILE, so the text of an unknown authority names it,
// unless the connection has an authority of its own.
func TestUnusableRoots(t *testing.T) {
	unknown := &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
	const text = "x509: certificate signed by unknown authority"
	folder := t.TempDir()
	authority, err := https.SelfSigned("slack.test")
	if err != nil {
		t.Fatal(err)
	}
	usable, empty := filepath.Join(folder, "usable"), filepath.Join(folder, "empty")
	for file, content := range map[string][]byte{usable: authority.PEM(), empty: []byte("no PEM")} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]struct {
		text string
		kind Kind
	}{
		"":     {text, UnknownAuthority},
		usable: {text, UnknownAuthority},
		empty:  {text + ", and SSL_CERT_FILE has no PEM certificate: " + empty, NoRoots},
		folder + "/missing": {
			text + ", and SSL_CERT_FILE cannot be read: open " + folder + "/missing: no such file or directory", NoRoots,
		},
	} {
		t.Setenv("SSL_CERT_FILE", path)
		if kind, got := OfSystemRoots(unknown); kind != want.kind || got != want.text {
			t.Errorf("%q: %q (%q), expected %q (%q)", path, got, kind, want.text, want.kind)
		}
		if kind, got := Of(unknown), Text(unknown); kind != UnknownAuthority || got != text {
			t.Errorf("%q: %q (%q) with an authority of its own", path, got, kind)
		}
	}
}

func TestKinds(t *testing.T) {
	t.Setenv("SSL_CERT_FILE", "")
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	proxied := func(err error) error { return &net.OpError{Op: "proxyconnect", Net: "tcp", Err: err} }
	unix := func(err error) error {
		return &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", err)}
	}
	verify := func(err error) error { return &tls.CertificateVerificationError{Err: err} }
	expired := verify(x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired})
	unknownHost := dial(&net.DNSError{Err: "no such host", Name: "slack.test", IsNotFound: true})
	for i, test := range []struct {
		err  error
		want Kind
	}{
		{nil, ""},
		{errors.New("another"), ""},
		{expired, Expired},
		{&url.Error{Op: "Post", URL: "https://hooks.test/SeCrEt", Err: expired}, Expired},
		{verify(x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.NotAuthorizedToSign}), BadCertificate},
		{verify(x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.IncompatibleUsage}), BadCertificate},
		{verify(x509.UnhandledCriticalExtension{}), BadCertificate},
		{unix(syscall.ENOENT), NoSocket},
		{unix(syscall.EACCES), SocketDenied},
		{&fs.PathError{Op: "open", Path: "/ca.pem", Err: syscall.ENOENT}, ""},
		{verify(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "slack.test"}), OtherName},
		{verify(x509.UnknownAuthorityError{}), UnknownAuthority},
		{x509.SystemRootsError{Err: syscall.EACCES}, NoRoots},
		{http.ErrSchemeMismatch, NotTLS},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, NotTLS},
		{errors.New(`malformed HTTP response "\x00\x00\x1e"`), HTTP2},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: no application protocol")}, HTTP2},
		{errors.New(`malformed HTTP response "SSH-2.0"`), ""},
		{dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), Refused},
		{dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH)), NoRoute},
		{dial(os.NewSyscallError("connect", syscall.ENETUNREACH)), NoRoute},
		{dial(os.NewSyscallError("socket", syscall.EMFILE)), TooManyFiles},
		{dial(os.NewSyscallError("socket", syscall.ENFILE)), TooManyFiles},
		{dial(&net.DNSError{Err: "dial udp 192.0.2.1:53: socket: too many open files", Name: "slack.test"}), TooManyFiles},
		{unknownHost, UnknownHost},
		{proxied(dial(syscall.ECONNREFUSED)), Proxy},
		{proxied(dial(syscall.EHOSTUNREACH)), Proxy},
		{proxied(unknownHost), Proxy},
		{proxied(expired), Expired},
		{proxied(dial(syscall.EMFILE)), TooManyFiles},
	} {
		if got := Of(test.err); got != test.want {
			t.Errorf("%d: %v is %q, expected %q", i, test.err, got, test.want)
		}
	}
}
