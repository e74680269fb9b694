package settings

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"notifier/test/kit"
)

// applied are the options of a connection that is made again and again.
func applied(t *testing.T, n NATS) nats.Options {
	t.Helper()
	var o nats.Options
	for _, option := range n.ReconnectOptions("test") {
		kit.Check(t, option(&o))
	}
	return o
}

// broken expects these files to be reported, in this order and without their content.
func broken(t *testing.T, n NATS, variables ...string) {
	t.Helper()
	text := n.BrokenFiles()
	var got []string
	for _, line := range strings.Split(text, "; NATS") {
		if name, _, found := strings.Cut(strings.TrimPrefix(line, "NATS"), ":"); found {
			got = append(got, "NATS"+name)
		}
	}
	if strings.Join(got, " ") != strings.Join(variables, " ") || strings.Contains(text, "hunter2") {
		t.Errorf("reported: %q, expected %q", text, variables)
	}
}

// creds is a credentials file with a new user, and the signature of its key.
func creds(t *testing.T, jwt string) (content, signature []byte) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	kit.Check(t, err)
	seed, err := pair.Seed()
	kit.Check(t, err)
	signature, err = pair.Sign([]byte("nonce"))
	kit.Check(t, err)
	content = []byte("-----BEGIN NATS USER JWT-----\n" + jwt + "\n------END NATS USER JWT------\n\n" +
		"-----BEGIN USER NKEY SEED-----\n" + string(seed) + "\n------END USER NKEY SEED------\n")
	return content, signature
}

func TestCredentialsAreReadAgain(t *testing.T) {
	first, firstSignature := creds(t, "eyFirst")
	second, secondSignature := creds(t, "eySecond")
	file := written(t, filepath.Join(t.TempDir(), "creds"), first)
	setenv(t, map[string]string{"NATS_CREDS_FILE": file})
	c, err := loaded(t)
	kit.Check(t, err)
	o := applied(t, c.NATS)
	expect := func(jwt string, signature []byte) {
		t.Helper()
		gotJWT, err := o.UserJWT()
		kit.Check(t, err)
		got, err := o.SignatureCB([]byte("nonce"))
		kit.Check(t, err)
		if gotJWT != jwt || !bytes.Equal(got, signature) {
			t.Errorf("JWT %s, expected %s and the signature of the key beside it", gotJWT, jwt)
		}
	}
	expect("eyFirst", firstSignature)
	broken(t, c.NATS)
	for _, content := range []string{"", "hunter2", string(second[:40]), string(second[strings.Index(string(second), "SU"):])} {
		written(t, file, []byte(content))
		expect("eyFirst", firstSignature)
		broken(t, c.NATS, "NATS_CREDS_FILE")
	}
	kit.Check(t, os.Remove(file))
	expect("eyFirst", firstSignature)
	broken(t, c.NATS, "NATS_CREDS_FILE")
	written(t, file, second)
	expect("eySecond", secondSignature)
	broken(t, c.NATS)
}

func TestCertificatesAreReadAgain(t *testing.T) {
	cert, key := kit.Certificate(t)
	otherCert, otherKey := kit.Certificate(t)
	setenv(t, map[string]string{"NATS_TLS_CA": cert, "NATS_TLS_CERT": cert, "NATS_TLS_KEY": key})
	c, err := loaded(t)
	kit.Check(t, err)
	o := applied(t, c.NATS)
	if !o.Secure || o.TLSConfig == nil {
		t.Error("no TLS")
	}
	used := func() string {
		pair, err := o.TLSCertCB()
		kit.Check(t, err)
		return string(pair.Certificate[0])
	}
	roots := o.RootCAsCB
	before, err := roots()
	kit.Check(t, err)
	first := used()
	replace := func(with, what string) {
		content, err := os.ReadFile(with)
		kit.Check(t, err)
		written(t, what, content)
	}
	replace(otherCert, cert) // the key is not there yet
	if used() != first {
		t.Error("a certificate without its key is used")
	}
	broken(t, c.NATS, "NATS_TLS_CERT")
	replace(otherKey, key)
	if used() == first {
		t.Error("the new certificate is not used")
	}
	if after, err := roots(); err != nil || after.Equal(before) {
		t.Errorf("the new authority is not used: %v", err)
	}
	broken(t, c.NATS)
	written(t, cert, []byte("hunter2"))
	if after, err := roots(); err != nil || after == nil {
		t.Errorf("no authority, %v", err)
	}
	broken(t, c.NATS, "NATS_TLS_CA")
}

// TestURLsFromFiles: user, password and token of a URL in a file are read again; servers with users of their
// own are not.
func TestURLsFromFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "url")
	for _, test := range []struct{ name, before, after, servers, user, password, token string }{
		{"password", "nats://me:old@one,two", "nats://me:new@one,me:new@two", "", "me", "old", ""},
		{"another password", "nats://me:old@one,me:old@two:4223", "nats://me:n%40w@one,me:n%40w@two", "nats://one,nats://two:4223", "me", "n@w", ""},
		{"token", "nats://old@one", "nats://new@one", "nats://one", "", "", "new"},
		{"a token becomes a user", "nats://old@one", "nats://me:new@one\n", "nats://one", "me", "new", ""},
		{"a user where there was none", "tls://one:4222", "tls://me:new@one:4222", "tls://one:4222", "me", "new", ""},
		{"written by half", "nats://me:old@one", "nats://me", "nats://one", "me", "old", ""},
		{"emptied", "nats://me:old@one", "", "nats://one", "me", "old", ""},
		{"users of their own", "nats://me:old@one", "nats://me:new@one,you:new@two", "nats://one", "me", "old", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			setenv(t, map[string]string{"NATS_URL_FILE": written(t, file, []byte(test.before))})
			c, err := loaded(t)
			kit.Check(t, err)
			o := applied(t, c.NATS)
			written(t, file, []byte(test.after))
			if test.servers == "" { // as it was given
				if o.UserInfo != nil || c.NATS.ReconnectURL() != test.before {
					t.Errorf("servers %q, expected those of the setting", c.NATS.ReconnectURL())
				}
				return
			}
			user, password := o.UserInfo()
			token := o.TokenHandler()
			if c.NATS.ReconnectURL() != test.servers || user != test.user || password != test.password || token != test.token {
				t.Errorf("%s user %q, password %q, token %q", c.NATS.ReconnectURL(), user, password, token)
			}
		})
	}
}
