package settings

import (
	"net/url"
	"os"
	"slices"
	"strings"
)

// proxies are the variables of Go's HTTP client. Of each pair, the first one that is set counts.
var proxies = [][2]string{{"HTTPS_PROXY", "https_proxy"}, {"HTTP_PROXY", "http_proxy"}}

// checkProxies rejects values that Go would ignore without a word, and schemes that it would take for http.
// In a network without another way out, all posts would fail, and elsewhere they could bypass the proxy. A
// proxy can contain a password.
func (l *loader) checkProxies() {
	for _, names := range proxies {
		name := names[0]
		if os.Getenv(name) == "" {
			name = names[1]
		}
		if raw := os.Getenv(name); raw != "" && !isProxy(raw) {
			l.problem(name, "is not the URL of a proxy that notifier can use; expected "+
				"http://[user:password@]host:port, or the same with https or socks5%s", escaping(raw))
		}
	}
}

func isProxy(raw string) bool {
	if !strings.Contains(raw, "://") {
		raw = "http://" + raw // as Go does
	}
	parsed, err := url.Parse(raw)
	return err == nil && slices.Contains([]string{"http", "https", "socks5", "socks5h"}, parsed.Scheme) &&
		parsed.Hostname() != "" && !strings.HasSuffix(parsed.Host, ":") && mayBePort(parsed.Port())
}
