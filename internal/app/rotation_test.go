package app

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"notifier/test/kit"
	"notifier/test/natstest"
)

// replace puts a new file in the place of another one, as a careful operator does.
func replace(t *testing.T, path string, content []byte) {
	t.Helper()
	kit.Check(t, os.WriteFile(path+".new", content, 0o600))
	kit.Check(t, os.Rename(path+".new", path))
}

func copyOf(t *testing.T, from, to string) string {
	t.Helper()
	content, err := os.ReadFile(from)
	kit.Check(t, err)
	replace(t, to, content)
	return to
}

// newUser returns a pair of keys with its seed and its public key.
func newUser(t *testing.T) (seed []byte, public string) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	kit.Check(t, err)
	seed, err = pair.Seed()
	kit.Check(t, err)
	public, err = pair.PublicKey()
	kit.Check(t, err)
	return seed, public
}

// A new seed is a new user, so its public key is read again, too.
func TestSeedIsReadAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "seed")
	first, firstUser := newUser(t)
	second, secondUser := newUser(t)
	replace(t, file, first)
	server := natstest.Server(t, &natsserver.Options{Nkeys: []*natsserver.NkeyUser{{Nkey: firstUser}}})
	port := portOf(server)
	l := connected(t, func(env map[string]string) { env["NATS_URL"], env["NATS_NKEY_FILE"] = server.ClientURL(), file })
	kit.Eventually(t, "connected", l.IsConnected)
	stopServer(server)
	natstest.Server(t, &natsserver.Options{Port: port, Nkeys: []*natsserver.NkeyUser{{Nkey: secondUser}}})
	l.eventually(t, "authorization violation")
	kit.Check(t, os.Remove(file))
	l.eventually(t, "open "+file+": no such file or directory")
	replace(t, file, second)
	kit.Eventually(t, "connected as the second user", l.IsConnected)
}

// authority is the operator and the account of a server that knows its users by JWTs.
type authority struct {
	operator, account nkeys.KeyPair
	claims            *jwt.AccountClaims
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	operator, err := nkeys.CreateOperator()
	kit.Check(t, err)
	account, err := nkeys.CreateAccount()
	kit.Check(t, err)
	public, err := account.PublicKey()
	kit.Check(t, err)
	return &authority{operator, account, jwt.NewAccountClaims(public)}
}

// creds returns the credentials file of a new user.
func (a *authority) creds(t *testing.T) (content []byte, public string) {
	t.Helper()
	seed, public := newUser(t)
	token, err := jwt.NewUserClaims(public).Encode(a.account)
	kit.Check(t, err)
	content, err = jwt.FormatUserConfig(token, seed)
	kit.Check(t, err)
	return content, public
}

func (a *authority) start(t *testing.T, port int) *natsserver.Server {
	t.Helper()
	operator, err := a.operator.PublicKey()
	kit.Check(t, err)
	token, err := a.claims.Encode(a.operator)
	kit.Check(t, err)
	resolver := &natsserver.MemAccResolver{}
	kit.Check(t, resolver.Store(a.claims.Subject, token))
	return natstest.Server(t, &natsserver.Options{Port: port, TrustedKeys: []string{operator}, AccountResolver: resolver})
}

func TestCredentialsAreReadAgain(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	first, firstUser := a.creds(t)
	second, _ := a.creds(t)
	file := filepath.Join(t.TempDir(), "creds")
	replace(t, file, first)
	server := a.start(t, 0)
	port := portOf(server)
	l := connected(t, func(env map[string]string) { env["NATS_URL"], env["NATS_CREDS_FILE"] = server.ClientURL(), file })
	kit.Eventually(t, "connected", l.IsConnected)
	stopServer(server)
	a.claims.RevokeAt(firstUser, time.Now().Add(time.Minute))
	a.start(t, port)
	l.eventually(t, "authorization violation")
	kit.Check(t, os.Remove(file))
	l.eventually(t, "open "+file+": no such file or directory")
	replace(t, file, second)
	kit.Eventually(t, "connected as the second user", l.IsConnected)
}

// A worker follows a new authority, and then shows its new certificate.
func TestCertificatesAreReadAgain(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	ca, cert, key := filepath.Join(folder, "ca"), filepath.Join(folder, "cert"), filepath.Join(folder, "key")
	start := func(port int, of *kit.Authority) *natsserver.Server {
		certFile, keyFile := of.Issue(t, "127.0.0.1")
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		kit.Check(t, err)
		return natstest.Server(t, &natsserver.Options{
			Port: port, TLS: true, TLSTimeout: 2, TLSVerify: true,
			TLSConfig: &tls.Config{
				Certificates: []tls.Certificate{pair}, ClientCAs: of.Pool(),
				ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
			},
		})
	}
	first, second := kit.NewAuthority(t, "first"), kit.NewAuthority(t, "second")
	give := func(of *kit.Authority) {
		certFile, keyFile := of.Issue(t, "notifier")
		copyOf(t, certFile, cert)
		copyOf(t, keyFile, key)
	}
	copyOf(t, first.File, ca)
	give(first)
	server := start(0, first)
	port := portOf(server)
	l := connected(t, func(env map[string]string) {
		env["NATS_URL"] = fmt.Sprintf("tls://127.0.0.1:%d", port)
		env["NATS_TLS_CA"], env["NATS_TLS_CERT"], env["NATS_TLS_KEY"] = ca, cert, key
	})
	kit.Eventually(t, "connected", l.IsConnected)
	stopServer(server)
	start(port, second)
	l.eventually(t, "certificate signed by unknown authority")
	copyOf(t, second.File, ca)
	l.eventually(t, "remote error: tls")
	give(second)
	kit.Eventually(t, "connected with the second certificate", l.IsConnected)
}
