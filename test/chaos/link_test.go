package chaos

import (
	"fmt"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"notifier/test/kit"
)

// link is the connection of one worker to one server, through toxiproxy. Every change begins and ends
// with all connections cut. toxiproxy can change the toxics of a link in use, but hangs forever if a
// connection ends at that moment.
type link struct {
	name, addr, server string
	proxy              *toxiproxy.Proxy
}

// connect opens a link to a server for the duration of the test.
func connect(t *testing.T, name, server string) *link {
	t.Helper()
	l := &link{name: name, addr: kit.FreeAddr(t), server: server}
	kit.Check(t, l.open())
	t.Cleanup(l.cut)
	return l
}

// cut closes all connections and accepts no new ones.
func (l *link) cut() { l.proxy.Stop() }

// toxic degrades a link, in the terms of toxiproxy's API. attributes are the members of a JSON object,
// without the braces.
type toxic struct{ kind, attributes string }

// open accepts connections, with the toxics in both directions.
func (l *link) open(toxics ...toxic) error {
	// A proxy needs an owner, but only for its logger and its metrics, which are off.
	owner := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	l.proxy = toxiproxy.NewProxy(owner, l.name, l.addr, l.server)
	for _, bad := range toxics {
		for _, direction := range []string{"upstream", "downstream"} {
			_, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(
				`{"type":%q,"stream":%q,"attributes":{%s}}`, bad.kind, direction, bad.attributes)))
			if err != nil {
				return fmt.Errorf("link %s: toxic %s: %d", l.name, bad.kind, err)
			}
		}
	}
	var err error
	if !kit.Within(kit.Patience, func() bool { err = l.proxy.Start(); return err == nil }) {
		return fmt.Errorf("link %s: %w", l.name, err)
	}
	return nil
}
