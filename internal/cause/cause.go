// Package cause names why a connection failed: in a text for people, and as a Kind, by which a check
// chooses its advice. It is the one place that knows how Go reports these failures, for all servers.
//
// The package is a leaf: it knows no protocol and no setting.
package cause

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
)

// Kind is a kind of failure. Its text is for logs and tests.
type Kind string

// The kinds, a closed list. A failure of another kind has "".
const (
	Expired          Kind = "expired certificate" // or one that is not valid yet
	OtherName        Kind = "certificate for another name"
	UnknownAuthority Kind = "certificate of an unknown authority"
	BadCertificate   Kind = "certificate with another fault"
	NoRoots          Kind = "unreadable authorities" // of the system: see OfSystemRoots
	NotTLS           Kind = "server without TLS"
	HTTP2            Kind = "HTTP/2 alone" // the server speaks it although HTTP/1.1 was agreed
	Refused          Kind = "connection refused"
	UnknownHost      Kind = "unknown host"
	NoRoute          Kind = "no route"
	NoSocket         Kind = "no such socket"       // of Unix
	SocketDenied     Kind = "no right to a socket" // likewise
	TooManyFiles     Kind = "too many open files"
	Proxy            Kind = "failing proxy" // it cannot be reached, or makes no connection
)

// Of returns the kind of a failure.
func Of(err error) Kind {
	var (
		invalid    x509.CertificateInvalidError
		unverified *tls.CertificateVerificationError
		dns        *net.DNSError
		failed     *net.OpError
	)
	switch {
	case errors.As(err, &failed) && failed.Op == proxyConnect:
		switch kind := Of(failed.Err); kind {
		case "", Refused, UnknownHost, NoRoute:
			return Proxy
		default:
			return kind
		}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return Expired
	case errors.As(err, new(x509.HostnameError)):
		return OtherName
	case errors.As(err, new(x509.SystemRootsError)):
		return NoRoots
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return UnknownAuthority
	case errors.As(err, &unverified):
		return BadCertificate
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, new(tls.RecordHeaderError)):
		return NotTLS
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case failed != nil && failed.Net == "unix" && errors.Is(err, syscall.ENOENT):
		return NoSocket
	case failed != nil && failed.Net == "unix" && errors.Is(err, syscall.EACCES):
		return SocketDenied
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE),
		errors.As(err, &dns) && strings.HasSuffix(dns.Err, syscall.EMFILE.Error()): // which it does not wrap
		return TooManyFiles
	case dns != nil:
		return UnknownHost
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return NoRoute
	case err != nil && isHTTP2(Text(err)):
		return HTTP2
	}
	return ""
}

// proxyConnect is the Op of net/http's error for a failed connection to a proxy.
const proxyConnect = "proxyconnect"

// Text returns the text of an error's cause, without the errors that wrap it: those quote the URL, which can
// hold a secret. It quotes nothing that a server or a proxy has sent, which could be the request itself. If
// the connection to the proxy is the cause, the text begins with "proxy HOST:PORT: ".
func Text(err error) string {
	var failed *net.OpError
	if errors.As(err, &failed) && failed.Op == proxyConnect {
		return "proxy" + dialled(failed.Err) + ": " + Text(failed.Err)
	}
	if wrong := (x509.HostnameError{}); errors.As(err, &wrong) { // its own text lists the certificate's names
		return "x509: the certificate is not valid for " + wrong.Host
	}
	return innermost(err)
}

// OfSystemRoots returns the kind and the text of a failed connection that trusts the system's authorities.
// They blame an unusable SSL_CERT_FILE for an unknown authority. A connection with an authority of its own
// does not use that file.
func OfSystemRoots(err error) (Kind, string) {
	kind, text := Of(err), Text(err)
	if kind != UnknownAuthority {
		return kind, text
	}
	if unusable := UnusableRoots(); unusable != nil {
		return NoRoots, text + ", and " + unusable.Error()
	}
	return kind, text
}

// dialled returns a blank and the address that could not be dialled, or "".
func dialled(err error) string {
	var failed *net.OpError
	if errors.As(err, &failed) && failed.Addr != nil {
		return " " + failed.Addr.String()
	}
	return ""
}

func innermost(err error) string {
	for {
		var inner error
		switch outer := err.(type) {
		case *net.DNSError, *fs.PathError: // the errors inside name neither the host nor the file
		case *net.OpError:
			if !strings.HasSuffix(outer.Op, " error") { // "remote error": the server has sent an alert of TLS
				inner = outer.Err
			}
		case interface{ Unwrap() error }:
			inner = outer.Unwrap()
		case interface{ Unwrap() []error }: // a format such as "%w: %w" ends with the cause
			if all := outer.Unwrap(); len(all) > 0 {
				inner = all[len(all)-1]
			}
		}
		if inner == nil {
			return withoutQuotation(err.Error())
		}
		err = inner
	}
}

// http2Frame ends the text about a response that begins with a frame of HTTP/2.
const http2Frame = ": a frame of HTTP/2"

func isHTTP2(text string) bool {
	return strings.HasSuffix(text, http2Frame) || strings.HasSuffix(text, "tls: no application protocol")
}

// withoutQuotation cuts a text before its first quotation: net/http quotes the beginning of a malformed
// response. A frame of HTTP/2 is recognized.
func withoutQuotation(text string) string {
	before, quotation, found := strings.Cut(text, `"`)
	if !found {
		return text
	}
	if at := strings.LastIndex(before, " ("); at >= 0 { // a remark that is incomplete without the quotation
		before = before[:at]
	}
	before = strings.TrimRight(before, " :[")
	if strings.HasPrefix(quotation, `\x00\x00`) {
		before += http2Frame
	}
	return before
}

// UnusableRoots returns an error if SSL_CERT_FILE names a file that has no authorities. Go ignores such a
// file silently, and then knows no private authority.
func UnusableRoots() error {
	path := os.Getenv("SSL_CERT_FILE")
	if path == "" {
		return nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("SSL_CERT_FILE cannot be read: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(content) {
		return fmt.Errorf("SSL_CERT_FILE has no PEM certificate: %s", path)
	}
	return nil
}
