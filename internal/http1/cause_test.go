package http1

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/textproto"
	"net/url"
	"os"
	"syscall"
	"testing"
)

func TestCause(t *testing.T) {
	dial := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, Err: err}
	}
	for want, err := range map[string]error{
		"connection refused": dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)),
		"no route to host":   &url.Error{Op: "Post", URL: "https://hooks.test/SeCrEt", Err: dial(syscall.EHOSTUNREACH)},
		"remote error: tls: handshake failure": &url.Error{
			Op: "Post", URL: "https://hooks.test/SeCrEt", Err: &net.OpError{Op: "remote error", Err: errors.New("tls: handshake failure")},
		},
		"proxy: connection refused":                     &net.OpError{Op: "proxyconnect", Net: "tcp", Err: dial(syscall.ECONNREFUSED)},
		"lookup slack.test: no such host":               dial(&net.DNSError{Err: "no such host", Name: "slack.test", UnwrapErr: errors.New("inner")}),
		"open /slack.pem: permission denied":            x509.SystemRootsError{Err: &fs.PathError{Op: "open", Path: "/slack.pem", Err: syscall.EACCES}},
		"x509: certificate signed by unknown authority": &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
		"malformed HTTP response: a frame of HTTP/2":    fmt.Errorf("broken: %w", errors.New(`malformed HTTP response "\x00\x00\x1e"`)),
		"malformed HTTP response":                       errors.New(`malformed HTTP response "POST /SeCrEt \"and\" more"`),
		"malformed MIME header line":                    textproto.ProtocolError(`malformed MIME header line: "text=SeCrEt"`),
		"unknown authority":                             errors.New(`unknown authority (possibly because of "SeCrEt" and "more")`),
		"the cause":                                     fmt.Errorf("%w: %w", errors.New("a sentinel"), errors.New("the cause")),
		"joined":                                        errors.Join(errors.New("first"), errors.New("joined")),
	} {
		if got := Cause(err); got != want {
			t.Errorf("Cause(%v) = %q, expected %q", err, got, want)
		}
	}
}
