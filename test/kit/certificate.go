package kit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// Certificate writes a certificate that signs itself, for 127.0.0.1, and its key, and returns their paths.
func Certificate(t testing.TB) (certFile, keyFile string) {
	t.Helper()
	template := template("127.0.0.1")
	template.IsCA, template.ExtKeyUsage = true, nil
	return write(t, template, nil)
}

// Authority signs certificates for servers.
type Authority struct {
	File string // its own certificate
	pair tls.Certificate
}

// NewAuthority makes an authority.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	template := template()
	template.Subject.CommonName = name
	template.IsCA, template.KeyUsage, template.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
	certFile, keyFile := write(t, template, nil)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	Check(t, err)
	return &Authority{File: certFile, pair: pair}
}

// Pool trusts the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.pair.Leaf)
	return pool
}

// Issue writes a certificate for host names and addresses, and its key, and returns their paths.
func (a *Authority) Issue(t testing.TB, names ...string) (certFile, keyFile string) {
	t.Helper()
	return write(t, template(names...), &a.pair)
}

// template is a certificate for an hour, of a server that is a client of others too.
func template(names ...string) *x509.Certificate {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serials.Add(1)), BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return template
}

var serials atomic.Int64

// write signs a certificate by an authority or, without one, by itself.
func write(t testing.TB, template *x509.Certificate, by *tls.Certificate) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Check(t, err)
	parent, signer := template, any(key)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	Check(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	Check(t, err)
	folder := t.TempDir()
	certFile, keyFile = filepath.Join(folder, "crt"), filepath.Join(folder, "key")
	Check(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	Check(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	return certFile, keyFile
}
