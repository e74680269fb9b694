package slackout

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// Nothing that can be printed holds the token, the webhook's URL or the event's text, whatever goes wrong and
// with whatever verb.
func TestNoSecretIsPrinted(t *testing.T) {
	const secret = "SeCrEt"
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Check(t, err)
	_ = dead.Close()
	s := startSlack(t)
	// net/http quotes the beginning of such a reply in its error.
	noHTTP := kit.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		kit.Check(t, err)
		_, _ = fmt.Fprintf(conn, "220 mail.example.com ESMTP %s%s xoxb-%s\r\n\r\n", r.Host, r.URL.Path, secret)
		_ = conn.Close()
	}))
	// As a header that is malformed: the request's headers, among them the password's, and its body.
	echoing := kit.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		kit.Check(t, err)
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\n%s %q %s\r\n\r\n", r.Header.Get("Authorization"), body, secret)
		_ = conn.Close()
	}))
	noTLS := kit.Serve(t, http.NotFoundHandler())

	var printed []any
	post := func(config Config, b devstack.Response) {
		t.Helper()
		p := newPoster(t, config)
		printed = append(printed, config, &config, p, *p, []any{config, p}, struct{ C Config }{config})
		s.Respond(devstack.Next(b))
		_, postErr := p.Post(t.Context(), hello())
		_, authErr := p.CheckAuth(t.Context())
		s.Respond(devstack.NextHistory(b))
		_, _, findErr := p.Find(t.Context(), hello())
		if postErr == nil || findErr == nil {
			t.Errorf("%+v: Post has the error %v, Find %v", b, postErr, findErr)
		}
		for _, err := range []error{postErr, authErr, findErr} {
			for ; err != nil; err = errors.Unwrap(err) {
				printed = append(printed, err)
			}
		}
	}
	for _, base := range []string{
		s.URL(), "http://" + dead.Addr().String(), "http://" + s.URL()[len("https://"):], "https://" + noTLS, "http://" + noHTTP,
		"http://" + echoing,
	} {
		for _, b := range []devstack.Response{
			{Status: 302, Header: location("http://user:" + secret + "@" + secret + "/" + secret)},
			{Status: 400, Body: secret}, {Status: 404, Body: "no such page: /services/T000/B000/" + secret},
			{Status: 500, Body: secret}, {Status: 429, RetryAfter: secret},
			{Body: secret}, {Body: `{"ok":false,"error":"` + secret + `"}`}, {Body: `{"ok":false,"error":"xoxb-` + secret + `"}`},
			{Reset: true}, {Hang: true},
		} {
			for _, config := range []Config{
				{Token: "xoxb-" + secret, APIURL: strings.Replace(base, "://", "://user:"+secret+"@", 1) + "/api/", Channel: "C0"},
				{WebhookURL: base + "/services/T000/B000/" + secret},
			} {
				config.Timeout, config.RootCAs = 5*time.Second, trusted().Pool()
				if b.Hang {
					config.Timeout = 20 * time.Millisecond
				}
				post(config, b)
			}
		}
	}
	encoded := base64.StdEncoding.EncodeToString([]byte("user:" + secret))
	for _, value := range printed {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			text := fmt.Sprintf(verb, value)
			for _, form := range []string{secret, fmt.Sprintf("%x", secret), encoded, hello().Text} {
				if strings.Contains(text, form) {
					t.Fatalf("%s of %T shows the secret or the text: %s", verb, value, text)
				}
			}
		}
		if text, _ := json.Marshal(value); strings.Contains(string(text), secret) {
			t.Fatalf("the JSON of %T shows the secret: %s", value, text)
		}
	}
}
