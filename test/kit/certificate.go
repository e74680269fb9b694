package kit

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"notifier/internal/devstack/https"
)

// Certificate writes a certificate that signs itself, for 127.0.0.1, and its key, and returns their paths.
func Certificate(t testing.TB) (certFile, keyFile string) {
	t.Helper()
	certificate, err := https.SelfSigned("127.0.0.1")
	Check(t, err)
	return write(t, certificate)
}

// Authority signs certificates for servers.
type Authority struct {
	File        string // its own certificate
	certificate *https.Certificate
}

// NewAuthority makes an authority.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	certificate, err := https.SelfSigned(name)
	Check(t, err)
	file, _ := write(t, certificate)
	return &Authority{File: file, certificate: certificate}
}

// Pool trusts the authority.
func (a *Authority) Pool() *x509.CertPool { return a.certificate.Pool() }

// Issue writes a certificate for host names and addresses, and its key, and returns their paths.
func (a *Authority) Issue(t testing.TB, names ...string) (certFile, keyFile string) {
	t.Helper()
	certificate, err := a.certificate.Issue(names...)
	Check(t, err)
	return write(t, certificate)
}

func write(t testing.TB, certificate *https.Certificate) (certFile, keyFile string) {
	t.Helper()
	key, err := certificate.KeyPEM()
	Check(t, err)
	folder := t.TempDir()
	certFile, keyFile = filepath.Join(folder, "crt"), filepath.Join(folder, "key")
	Check(t, os.WriteFile(certFile, certificate.PEM(), 0o600))
	Check(t, os.WriteFile(keyFile, key, 0o600))
	return certFile, keyFile
}

// SlackTLS returns how a stand-in for Slack on 127.0.0.1 speaks HTTPS, with HTTP/2 and HTTP/1.1 as Slack
// does, and the settings by which a process of notifier trusts it.
//
// It returns nil, for plain HTTP, on the systems where Go takes no roots from SSL_CERT_FILE.
func SlackTLS(t testing.TB) (server *https.Server, trust map[string]string) {
	t.Helper()
	if runtime.GOOS == "darwin" || runtime.GOOS == "windows" {
		t.Logf("the fake Slack speaks plain HTTP: %s ignores SSL_CERT_FILE", runtime.GOOS)
		return nil, nil
	}
	certificate, err := https.SelfSigned("127.0.0.1")
	Check(t, err)
	file := filepath.Join(t.TempDir(), "slack.pem")
	Check(t, certificate.Save(file))
	return &https.Server{Certificate: certificate}, map[string]string{"SSL_CERT_FILE": file}
}
