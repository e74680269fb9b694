package settings

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"
	"github.com/redis/go-redis/v9"

	"notifier/test/kit"
)

func written(t *testing.T, path string, content []byte) string {
	t.Helper()
	kit.Check(t, os.WriteFile(path, content, 0o600))
	return path
}

// TestTLS reads certificates that are right and takes a connection with them, as NATS and Redis would.
func TestTLS(t *testing.T) {
	cert, key := kit.Certificate(t)
	setenv(t, map[string]string{
		"NATS_TLS_CA": cert, "NATS_TLS_CERT": cert, "NATS_TLS_KEY": key,
		"REDIS_URL": "rediss://127.0.0.1:6380/0", "REDIS_TLS_CA": cert, "REDIS_TLS_CERT": cert, "REDIS_TLS_KEY": key,
	})
	c, err := loaded(t)
	kit.Check(t, err)
	pair, err := tls.LoadX509KeyPair(cert, key)
	kit.Check(t, err)
	for name, client := range map[string]*tls.Config{"NATS": c.NATS.tls, "Redis": c.Store.Redis.(*redis.Client).Options().TLSConfig} {
		if client.MinVersion < tls.VersionTLS12 {
			t.Errorf("%s: lowest version %x, expected TLS 1.2 or above", name, client.MinVersion)
		}
		listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
			Certificates: []tls.Certificate{pair}, ClientCAs: client.RootCAs, ClientAuth: tls.RequireAndVerifyClientCert,
		})
		kit.Check(t, err)
		shaken := make(chan error, 1)
		go func() {
			connection, err := listener.Accept()
			if err == nil {
				err = connection.(*tls.Conn).Handshake()
				_ = connection.Close()
			}
			shaken <- err
		}()
		connection, err := tls.Dial("tcp", listener.Addr().String(), client)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			_ = connection.Close()
		}
		if err := <-shaken; err != nil {
			t.Errorf("%s: the server reports %v", name, err)
		}
		_ = listener.Close()
	}
}

// TestTLSProblems covers files that exist but hold the wrong content.
func TestTLSProblems(t *testing.T) {
	cert, key := kit.Certificate(t)
	_, otherKey := kit.Certificate(t)
	folder := t.TempDir()
	text := written(t, filepath.Join(folder, "text"), []byte("no certificate\n"))
	for _, prefix := range []string{"NATS_TLS", "REDIS_TLS"} {
		for name, test := range map[string]struct{ ca, cert, key, want string }{
			"an authority that is none":     {text, "", "", "_CA: " + text + " contains no PEM certificate; expected a readable file with PEM certificates"},
			"an authority that is a folder": {folder, "", "", "_CA: " + folder + " is not a regular file of at most 1048576 bytes; expected a readable file with PEM certificates"},
			"a key that is a certificate":   {"", cert, cert, "_CERT: tls: found a certificate rather than a key in the PEM for the private key; expected a PEM certificate and its key in PREFIX_KEY"},
			"another's key":                 {"", cert, otherKey, "_CERT: tls: private key does not match public key; expected a PEM certificate and its key in PREFIX_KEY"},
			"a certificate that is none":    {"", text, key, "_CERT: tls: failed to find any PEM data in certificate input; expected a PEM certificate and its key in PREFIX_KEY"},
			"a key that is not there":       {"", cert, "/missing", "_KEY: stat /missing: no such file or directory; expected a readable file with the PEM key of PREFIX_CERT"},
			"a certificate that is not":     {"", "/missing", key, "_CERT: stat /missing: no such file or directory; expected a readable file with a PEM certificate"},
		} {
			t.Run(prefix+" "+name, func(t *testing.T) {
				setenv(t, map[string]string{
					"REDIS_URL":    "rediss://127.0.0.1:6380/0",
					prefix + "_CA": test.ca, prefix + "_CERT": test.cert, prefix + "_KEY": test.key,
				})
				_, err := loaded(t)
				if got, want := strings.Join(lines(t, err), "\n"), prefix+strings.ReplaceAll(test.want, "PREFIX", prefix); got != want {
					t.Errorf("\n%s\nexpected\n%s", got, want)
				}
			})
		}
	}
}

// TestNATSAuth takes seeds of users and nothing else, and quotes nothing of a file.
func TestNATSAuth(t *testing.T) {
	folder := t.TempDir()
	seed := func(name string, create func() (nkeys.KeyPair, error)) string {
		pair, err := create()
		kit.Check(t, err)
		content, err := pair.Seed()
		kit.Check(t, err)
		return written(t, filepath.Join(folder, name), content)
	}
	user, account := seed("user", nkeys.CreateUser), seed("account", nkeys.CreateAccount)
	text := written(t, filepath.Join(folder, "text"), []byte("hunter2\n"))
	for _, test := range []struct{ variable, file, want string }{
		{"NATS_NKEY_FILE", user, ""},
		{"NATS_NKEY_FILE", account, "NATS_NKEY_FILE: " + account + " contains no user seed; expected a readable file with a user's seed"},
		{"NATS_NKEY_FILE", text, "NATS_NKEY_FILE: " + text + " contains no user seed; expected a readable file with a user's seed"},
		{"NATS_CREDS_FILE", text, "NATS_CREDS_FILE: " + text + " contains no credentials; expected a readable credentials file with a user's JWT and seed"},
	} {
		t.Run(test.variable+" "+filepath.Base(test.file), func(t *testing.T) {
			setenv(t, map[string]string{test.variable: test.file})
			c, err := loaded(t)
			if test.want == "" {
				if err != nil || len(c.NATS.auth.options) != 1 {
					t.Errorf("%d options and %v, expected one", len(c.NATS.auth.options), err)
				}
				return
			}
			if got := strings.Join(lines(t, err), "\n"); got != test.want {
				t.Errorf("\n%s\nexpected\n%s", got, test.want)
			}
		})
	}
}
