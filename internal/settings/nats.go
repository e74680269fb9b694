package settings

import (
	"crypto/tls"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/event"
	"notifier/internal/redact"
)

// NATSTimeout bounds connecting to NATS.
const NATSTimeout = 5 * time.Second

// PublisherInbox is the default inbox prefix of "notifier publish". It is not below _INBOX, because a
// permission for _INBOX would include the inboxes of all other clients.
const PublisherInbox = "_INBOX_publisher"

// IsInboxPrefix reports whether an inbox can be below a subject: it has no wildcards and no empty tokens.
func IsInboxPrefix(subject string) bool { return isPlainSubject(subject) }

// NATS is everything that a client of NATS needs.
type NATS struct {
	URL      string // servers, comma separated; it can contain passwords: show Servers
	Pattern  event.Pattern
	Stream   string
	Consumer string
	// of the streams that a worker creates; 0: three in a cluster of three servers or more, else one
	Replicas    int
	StreamBytes int64 // max bytes of the stream if a worker creates it; zero means no bound

	auth *natsAuth
	tls  *tls.Config // nil: as the URL says
}

// Servers is the list of servers without users, passwords and tokens.
func (n NATS) Servers() string { return redact.Servers(strings.Split(n.URL, ",")) }

// HasCertificate reports whether NATS_TLS_CERT identifies this client.
func (n NATS) HasCertificate() bool { return n.tls != nil && len(n.tls.Certificates) > 0 }

// PublisherOptions connect a publisher that receives its acknowledgements below inbox, an inbox prefix.
func (n NATS) PublisherOptions(name, inbox string) []nats.Option { return n.clientOptions(name, inbox) }

// WorkerOptions connect a worker. A client that may subscribe below the worker's inbox prefix sees every
// event delivered to it, so the prefix differs from _INBOX, from the operators' prefix and from the prefixes
// of other streams' workers (docs/security.md).
func (n NATS) WorkerOptions(name string) []nats.Option {
	return n.clientOptions(name, n.inbox("worker"))
}

// OperatorOptions connect an operator, who reads the dead-letter stream.
func (n NATS) OperatorOptions(name string) []nats.Option {
	return n.clientOptions(name, n.inbox("operator"))
}

// inbox returns the inbox prefix of a role. It is below _NOTIFIER, so that no permission for another client's
// inboxes includes it. A client that may subscribe there sees the events, and a deny inside a wider
// permission does not filter JetStream's deliveries.
func (n NATS) inbox(role string) string { return "_NOTIFIER." + n.Stream + "." + role }

// clientOptions are the authentication and TLS of the settings, a name that the server shows, and an inbox
// prefix.
func (n NATS) clientOptions(name, inbox string) []nats.Option {
	return slices.Concat(n.StrangerOptions(name), []nats.Option{nats.CustomInboxPrefix(inbox)}, n.auth.options)
}

// StrangerOptions connect a client without authentication.
func (n NATS) StrangerOptions(name string) []nats.Option {
	options := []nats.Option{nats.Name(name), nats.Timeout(NATSTimeout)}
	if n.tls != nil {
		options = append(options, nats.Secure(n.tls))
	}
	return options
}

// ReconnectURL and ReconnectOptions are URL and WorkerOptions for a connection that is made again whenever it
// is lost: with the user, password or token that the file of NATS_URL_FILE holds at that moment.
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

// RenewNKey reads NATS_NKEY_FILE again, where there is one, and sets its public key in the options of a
// connection. To be called before each reconnection, while nats.go locks the connection.
func (n NATS) RenewNKey(options *nats.Options) { n.auth.renewNKey(options) }

// BrokenFiles lists the secret files that failed to reload, each with the reason but without its content. It
// returns "" if all files are fine.
func (n NATS) BrokenFiles() string { return n.auth.problems() }
