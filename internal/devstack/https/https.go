// Package https lets servers for development and tests speak HTTPS as Slack does: with HTTP/2 and HTTP/1.1,
// between which a client chooses by ALPN. Real servers of HTTPS do so, and a client that handles plain HTTP may
// still fail with them.
//
// The package also makes their certificates. Nobody trusts these by default: a client needs the certificate
// as a root (Certificate.Pool), a process of notifier in the file that SSL_CERT_FILE names.
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
	"math/big"
	"net"
	"net/http"
	"os"
	"time"
)

// lifetime is how long a certificate is valid.
const lifetime = 30 * 24 * time.Hour

// Server says how a server speaks HTTPS.
type Server struct {
	Certificate *Certificate
	// HTTP1Only leaves out HTTP/2, as some proxies do.
	HTTP1Only bool
}

// Configure prepares an http.Server for ServeTLS("", "").
func (s Server) Configure(server *http.Server) {
	server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{s.Certificate.pair}}
	server.Protocols = &http.Protocols{}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(!s.HTTP1Only)
}

// Reset ends a hijacked connection as a cut network does: the client reads a reset, and no end of TLS.
func Reset(connection net.Conn) {
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

// Issue makes a certificate for host names and IP addresses, signed by this one. Servers and clients can use it.
func (c *Certificate) Issue(names ...string) (*Certificate, error) {
	template := template(names)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return sign(template, c)
}

func template(names []string) *x509.Certificate {
	template := &x509.Certificate{
		BasicConstraintsValid: true,
		NotBefore:             time.Now().Add(-time.Hour), // for clients whose clock is behind
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
	if err != nil {
		return nil, fmt.Errorf("%w; expected a certificate and its key in PEM, or no file", err)
	}
	if time.Now().After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("the certificate in %s has expired; remove the file", path)
	}
	return &Certificate{pair}, nil
}

// Save writes the certificate and its key to a new file, which only its owner can read.
func (c *Certificate) Save(path string) error {
	key, err := c.KeyPEM()
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(c.PEM(), key...))
	return errors.Join(err, file.Close())
}

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
