package settings

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// natsAuth authenticates a client to NATS. It rereads its files at each connection, so that they can be
// replaced while a worker runs. If a file is unusable at that moment, the content read before stays in use.
//
// For that it uses the callback options of nats.go. The options that read a file themselves (UserCredentials,
// NkeyOptionFromSeed, RootCAs, ClientCert) fail to connect while a file is missing or half written, and read
// the JWT and the seed of one file at two different times. No option renews the public key of NATS_NKEY_FILE.
type natsAuth struct {
	options []nats.Option // of every client
	renewed []nats.Option // of a client that connects again and again, besides
	// for such a client: the servers without the user, which comes from renewed; empty: as in the URL
	servers string

	mu       sync.Mutex
	user     *url.Userinfo // of the file that NATS_URL_FILE names
	jwt      string        // of NATS_CREDS_FILE
	pair     nkeys.KeyPair // of NATS_CREDS_FILE or NATS_NKEY_FILE
	nkeyFile string
	cert     tls.Certificate // of NATS_TLS_CERT and NATS_TLS_KEY
	roots    *x509.CertPool  // of NATS_TLS_CA
	broken   map[string]string
}

// again rereads a file. use applies the content, or fails and changes nothing. Errors quote no content.
func (a *natsAuth) again(variable string, use func() error) {
	err := use()
	if err == nil {
		delete(a.broken, variable)
		return
	}
	if a.broken == nil {
		a.broken = map[string]string{}
	}
	a.broken[variable] = fmt.Sprintf("%s: %v; what was read before is still used", variable, err)
}

// problems lists the files that failed to reload. It returns "" if all files are fine.
func (a *natsAuth) problems() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Values(a.broken)), "; ")
}

// readCreds reads a file with a user's JWT and seed.
func (a *natsAuth) readCreds(path string) error {
	content, err := readFile(path)
	if err != nil {
		return err
	}
	pair, err := nkeys.ParseDecoratedUserNKey(content)
	if err != nil {
		return fmt.Errorf("%s contains no credentials", path)
	}
	jwt, err := nkeys.ParseDecoratedJWT(content)
	if err != nil ||
		!strings.HasPrefix(
			jwt,
			"ey",
		) { // without this, a file with a seed alone would be sent to the server as it is
		return fmt.Errorf("%s contains no credentials", path)
	}
	a.jwt, a.pair = jwt, pair
	return nil
}

// readNKey reads a file with a user's seed.
func (a *natsAuth) readNKey(path string) error {
	content, err := readFile(path)
	if err != nil {
		return err
	}
	pair, err := nkeys.ParseDecoratedUserNKey(content)
	if err != nil {
		return fmt.Errorf("%s contains no user seed", path)
	}
	a.pair = pair
	return nil
}

// sign signs the server's challenge with the key that was read last.
func (a *natsAuth) sign(nonce []byte) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pair.Sign(nonce)
}

func (a *natsAuth) useCreds(path string) {
	a.options = append(a.options, nats.UserJWT(func() (string, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.again("NATS_CREDS_FILE", func() error { return a.readCreds(path) })
		return a.jwt, nil
	}, a.sign))
}

func (a *natsAuth) useNKey(path string) {
	a.nkeyFile = path
	a.options = append(a.options, func(o *nats.Options) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		public, err := a.pair.PublicKey()
		return errors.Join(err, nats.Nkey(public, a.sign)(o))
	})
}

// renewNKey sets the public key of NATS_NKEY_FILE for a connection. nats.go requests a signature at each
// connection but keeps the first public key.
func (a *natsAuth) renewNKey(o *nats.Options) {
	if a.nkeyFile == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.again("NATS_NKEY_FILE", func() error { return a.readNKey(a.nkeyFile) })
	if public, err := a.pair.PublicKey(); err == nil {
		o.Nkey = public
	}
}

// useURL rereads user, password and token from the file that NATS_URL_FILE names. nats.go parses the URL once
// and takes one user for all servers, so servers with different users keep theirs.
func (a *natsAuth) useURL(path, list string) {
	servers, user, err := splitUser(list)
	if path == "" || err != nil {
		return
	}
	a.servers, a.user = servers, user
	current := func() *url.Userinfo {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.again("NATS_URL_FILE", func() error { return a.readURL(path) })
		return a.user
	}
	a.renewed = append(a.renewed,
		nats.UserInfoHandler(func() (string, string) {
			user := current()
			password, is := user.Password()
			if !is {
				return "", ""
			}
			return user.Username(), password
		}),
		nats.TokenHandler(func() string {
			user := current()
			if _, is := user.Password(); is {
				return ""
			}
			return user.Username()
		}))
}

func (a *natsAuth) readURL(path string) error {
	content, err := readFile(path)
	if err != nil {
		return err
	}
	_, user, err := splitUser(string(content))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	case user == nil && a.user != nil: // written by half, most likely
		return fmt.Errorf("%s contains no user", path)
	}
	a.user = user
	return nil
}

// splitUser removes the user from every server of a list and returns it, if all servers share one. Otherwise
// user is nil. Its errors quote nothing of the list.
func splitUser(list string) (servers string, user *url.Userinfo, err error) {
	var plain []string
	for i, server := range strings.Split(strings.TrimRight(list, "\r\n"), ",") {
		parsed, err := parseServer(server)
		if err != nil || parsed.Host == "" {
			return "", nil, errors.New("expected a list of NATS URLs")
		}
		if i > 0 && parsed.User.String() != user.String() {
			return "", nil, errors.New("the servers have different users")
		}
		user, parsed.User = parsed.User, nil
		plain = append(plain, parsed.String())
	}
	return strings.Join(plain, ","), user, nil
}

// useTLS rereads the certificates at each connection. config holds the certificates read at startup.
func (a *natsAuth) useTLS(config *tls.Config, ca, cert, key string) {
	var certificate nats.TLSCertHandler
	if len(config.Certificates) > 0 {
		a.cert = config.Certificates[0]
		certificate = func() (tls.Certificate, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.again("NATS_TLS_CERT", func() error { return a.readCert(cert, key) })
			return a.cert, nil
		}
	}
	var roots nats.RootCAsHandler
	if ca != "" {
		a.roots = config.RootCAs
		roots = func() (*x509.CertPool, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.again("NATS_TLS_CA", func() error {
				read, err := readRoots(ca)
				if err == nil {
					a.roots = read
				}
				return err
			})
			return a.roots, nil
		}
	}
	a.options = append(a.options, nats.ClientTLSConfig(certificate, roots))
}

// readRoots reads a file with PEM certificates.
func readRoots(path string) (*x509.CertPool, error) {
	pem, err := readFile(path)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s contains no PEM certificate", path)
	}
	return roots, nil
}

func (a *natsAuth) readCert(cert, key string) error {
	certPEM, err := readFile(cert)
	if err != nil {
		return err
	}
	keyPEM, err := readFile(key)
	if err != nil {
		return err
	}
	// It fails, too, while one of the two is replaced and the other is not.
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err == nil {
		a.cert = pair
	}
	return err
}
