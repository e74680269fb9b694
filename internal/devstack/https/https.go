// Package https lets servers for development and tests speak HTTPS as Slack does: with HTTP/2 and HTTP/1.1,
// between which a client chooses by ALPN. Real servers of HTTPS do so, and a client that handles plain HTTP
// may still fail with them.
//
// The package also makes their certificates, which no client trusts by default. A client in the same process
// takes Certificate.Pool as its roots. Another process of notifier reads the certificate from the file in
// SSL_CERT_FILE.
package https

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// lifetime bounds the validity of a certificate.
const lifetime = 30 * 24 * time.Hour

// Server says how a server speaks HTTPS. If it is nil, the server speaks plain HTTP.
type Server struct {
	Certificate *Certificate
	// HTTP1Only leaves out HTTP/2, as some proxies do.
	HTTP1Only bool
}

// Scheme returns the scheme of the server's URLs, "https" or "http".
func (s *Server) Scheme() string {
	if s == nil {
		return "http"
	}
	return "https"
}

// Serve serves on a listener until the server is closed. As with http.Server.Serve, the error is never nil.
func (s *Server) Serve(server *http.Server, listener net.Listener) error {
	if s == nil {
		return server.Serve(listener)
	}
	server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{s.Certificate.pair}}
	server.Protocols = &http.Protocols{}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(!s.HTTP1Only)
	return server.ServeTLS(listener, "", "")
}

// Cut ends the connection of a request as a network failure does: by a reset, without TLS's close_notify.
// With HTTP/2 it resets the stream.
func Cut(w http.ResponseWriter) {
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil { // HTTP/2
		panic(http.ErrAbortHandler)
	}
	if secure, ok := connection.(*tls.Conn); ok {
		connection = secure.NetConn()
	}
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = connection.Close()
}

// Certificate is a certificate with its key.
type Certificate struct{ pair tls.Certificate }

// SelfSigned makes a certificate for host names and IP addresses that signs itself, for 30 days. It can sign
// others, so it serves as an authority, too.
func SelfSigned(names ...string) (*Certificate, error) {
	template := template(names)
	template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature
	return sign(template, nil)
}

// Expired is SelfSigned for a certificate that has expired, for tests of clients.
func Expired(names ...string) (*Certificate, error) {
	template := template(names)
	template.NotBefore, template.NotAfter = time.Now().Add(-lifetime), time.Now().Add(-time.Hour)
	return sign(template, nil)
}

// Issue makes a certificate for host names and IP addresses, signed by this one. Servers and clients can use
// it.
func (c *Certificate) Issue(names ...string) (*Certificate, error) {
	template := template(names)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return sign(template, c)
}

func template(names []string) *x509.Certificate {
	template := &x509.Certificate{
		BasicConstraintsValid: true,
		NotBefore:             time.Now().Add(-time.Hour), // for clients with a slow clock
		NotAfter:              time.Now().Add(lifetime),
	}
	if len(names) > 0 {
		template.Subject = pkix.Name{CommonName: names[0]}
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

// sign signs a certificate by another one. If by is nil, the certificate signs itself.
func sign(template *x509.Certificate, by *Certificate) (*Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	parent, signer := template, any(key)
	if by != nil {
		parent, signer = by.pair.Leaf, by.pair.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Certificate{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}}, nil
}

// Load reads a certificate and its key from one file, as Save writes them.
func Load(path string) (*Certificate, error) {
	pair, err := tls.LoadX509KeyPair(path, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err != nil:
		const expected = "expected a certificate and its key in PEM; remove the file to have one made"
		return nil, fmt.Errorf("%s: %w; %s", path, err, expected)
	case time.Now().After(pair.Leaf.NotAfter):
		return nil, fmt.Errorf("%s: the certificate has expired; remove the file to have one made", path)
	}
	return &Certificate{pair}, nil
}

// Save writes the certificate and its key to a new file, which only its owner can read. If the file exists,
// the error is fs.ErrExist.
func (c *Certificate) Save(path string) error {
	key, err := c.KeyPEM()
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.Write(append(c.PEM(), key...))
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Link(file.Name(), path) // whole or not at all, for another process that does the same
}

// IsFor reports whether the certificate is valid for a host name or an IP address.
func (c *Certificate) IsFor(host string) bool { return c.pair.Leaf.VerifyHostname(host) == nil }

// Pool trusts the certificate, and those that it has signed.
func (c *Certificate) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.pair.Leaf)
	return pool
}

// PEM returns the certificate as text, without its key.
func (c *Certificate) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.pair.Certificate[0]})
}

// KeyPEM returns the key as text.
func (c *Certificate) KeyPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(c.pair.PrivateKey)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
