package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// guard decides which requests are answered, and sets the headers that every answer has. It routes them too:
// http.ServeMux would redirect a path such as //healthz, and nothing here may lead a client to another place.
type guard struct {
	paths map[string]http.Handler
	names names
	token *[sha256.Size]byte // hash of the token; nil: none is needed
}

// open are the paths that need neither a known Host nor the token: whoever probes a worker knows neither, and
// a browser that was led here by another site learns nothing from them (see readyz).
var open = map[string]bool{"/healthz": true, "/readyz": true}

// ServeHTTP implements http.Handler.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	handler, known := g.paths[r.URL.Path]
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "expected GET or HEAD", http.StatusMethodNotAllowed)
	case !open[r.URL.Path] && !g.names.has(r.Host):
		http.Error(
			w,
			"the Host header has a name that is not known to be this server's; ADMIN_HOSTS can list it",
			http.StatusMisdirectedRequest,
		)
	case !open[r.URL.Path] && !g.authorized(r):
		header.Add("WWW-Authenticate", `Bearer realm="notifier"`)
		header.Add("WWW-Authenticate", `Basic realm="notifier", charset="UTF-8"`) // what browsers ask people for
		http.Error(
			w,
			"expected ADMIN_TOKEN, as a bearer token or as the password of any user",
			http.StatusUnauthorized,
		)
	case !known:
		http.NotFound(w, r)
	default:
		handler.ServeHTTP(w, r)
	}
}

// authorized reports whether a request has the token, as a bearer token or as a password. How long it takes
// does not depend on how much of a wrong token is right.
func (g *guard) authorized(r *http.Request) bool {
	if g.token == nil {
		return true
	}
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "basic") {
		_, given, _ = r.BasicAuth()
	} else if !strings.EqualFold(scheme, "bearer") {
		return false
	}
	hash := sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(hash[:], g.token[:]) == 1
}

// names are the host names by which the server may be asked. A page of another site can make its own name
// resolve to this server's address (DNS rebinding), and a browser then takes this server's answers for that
// site's: only the Host header shows it.
type names struct {
	exact  map[string]bool
	ending []string // ".example.org"
}

// newNames takes the host of the address that is listened on, the name of this machine, and what the settings
// list: names, or *.example.org for all names below that one.
func newNames(addr string, listed []string) names {
	n := names{exact: map[string]bool{"localhost": true}, ending: []string{".localhost"}}
	host, _, _ := net.SplitHostPort(addr) // it is listened on, so it is valid
	n.exact[plainName(host)] = true
	if own, err := os.Hostname(); err == nil {
		n.exact[plainName(own)] = true
	}
	for _, name := range listed {
		if ending, all := strings.CutPrefix(plainName(name), "*."); all {
			n.ending = append(n.ending, "."+ending)
		} else {
			n.exact[plainName(name)] = true
		}
	}
	return n
}

// has reports whether a Host header names this server: by an address, which no site can have as its name, or
// by one of the names. It is empty only in requests that no browser makes.
func (n names) has(header string) bool {
	host := header
	if name, _, err := net.SplitHostPort(header); err == nil {
		host = name
	}
	host = plainName(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	if _, err := netip.ParseAddr(host); err == nil || header == "" || host != "" && n.exact[host] {
		return true
	}
	for _, ending := range n.ending {
		if len(host) > len(ending) && strings.HasSuffix(host, ending) {
			return true
		}
	}
	return false
}

// plainName is a name as it is compared: DNS has no upper case, and a name may end in the root's dot.
func plainName(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }
