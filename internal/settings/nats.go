package settings

import (
	"crypto/tls"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/event"
	"notifier/internal/redact"
)

// NATSTimeout is how long a connection to NATS may take.
const NATSTimeout = 5 * time.Second

// workerInboxPrefix is where workers receive their events and replies, and operators their replies. It is below the
// _INBOX of everybody, so that a permission for _INBOX.> suffices. Others can be denied it, because whoever may listen
// there sees every event on its way to a worker (docs/security.md).
const workerInboxPrefix = "_INBOX.notifier"

// NATS is everything that a client of NATS needs.
type NATS struct {
	URL      string // servers, comma separated; it can contain passwords: show Servers
	Core     bool   // core NATS instead of JetStream
	Pattern  event.Pattern
	Stream   string
	Consumer string // or the queue group in core mode

	auth *natsAuth
	tls  *tls.Config // nil: as the URL says
}

// Servers is the list of servers without users, passwords and tokens.
func (n NATS) Servers() string { return redact.Servers(strings.Split(n.URL, ",")) }

// ClientOptions connect a publisher: with the authentication and TLS of the settings, under a name that the server shows.
func (n NATS) ClientOptions(name string) []nats.Option {
	options := append([]nats.Option{nats.Name(name), nats.Timeout(NATSTimeout)}, n.auth.options...)
	if n.tls != nil {
		options = append(options, nats.Secure(n.tls))
	}
	return options
}

// WorkerOptions are ClientOptions for workers and operators, whose inbox is closed to publishers.
func (n NATS) WorkerOptions(name string) []nats.Option {
	return append(n.ClientOptions(name), nats.CustomInboxPrefix(workerInboxPrefix))
}

// ReconnectURL and ReconnectOptions are URL and WorkerOptions for a connection that is made again whenever it is lost: with
// the user, password or token that the file of NATS_URL_FILE holds at that moment.
func (n NATS) ReconnectURL() string {
	if n.auth.servers != "" {
		return n.auth.servers
	}
	return n.URL
}

// ReconnectOptions are explained at ReconnectURL.
func (n NATS) ReconnectOptions(name string) []nats.Option {
	return append(n.WorkerOptions(name), n.auth.renewed...)
}

// RenewNKey reads NATS_NKEY_FILE again, where there is one, and sets its public key in the options of a connection. To be
// called before each reconnection, while nats.go locks the connection.
func (n NATS) RenewNKey(options *nats.Options) { n.auth.renewNKey(options) }

// BrokenFiles lists the files with secrets that could not be read again, each with the reason, and without what is in them;
// empty: none.
func (n NATS) BrokenFiles() string { return n.auth.problems() }
