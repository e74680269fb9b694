package chaos

import (
	"fmt"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"notifier/test/kit"
)

// link is the way from one worker to one of the servers. Whatever happens to it begins and ends with all its
// connections cut: toxiproxy can change the toxics of a link that is in use, but waits for ever when a
// connection ends just then.
type link struct {
	name, addr, server string
	proxy              *toxiproxy.Proxy
}

// connect starts a link to a server. It ends with the test.
func connect(t *testing.T, name, server string) *link {
	t.Helper()
	l := &link{name: name, addr: kit.FreeAddr(t), server: server}
	kit.Check(t, l.open())
	t.Cleanup(l.cut)
	return l
}

// cut ends all connections and lets no new ones in.
func (l *link) cut() { l.proxy.Stop() }

// toxic makes a link bad. It is as toxiproxy's API takes it; attributes are the inside of a JSON object.
type toxic struct{ kind, attributes string }

// open lets connections in, with toxics in both directions.
func (l *link) open(toxics ...toxic) error {
	// The library wants a server to belong to; it is asked for its logger and for metrics that are off.
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
		return fmt.Errorf("link %s: %d", l.name, err)
	}
	return nil
}
