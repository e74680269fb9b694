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

// NATSTimeout is how long a connection to NATS may take.
const NATSTimeout = 5 * time.Second

// PublisherInbox is the inbox prefix of "notifier publish" unless another one is asked for. It is not below
// _INBOX, because a permission for that would include the inboxes of all other clients.
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
	Replicas int

	auth *natsAuth
	tls  *tls.Config // nil: as the URL says
}

// Servers is the list of servers without users, passwords and tokens.
func (n NATS) Servers() string { return redact.Servers(strings.Split(n.URL, ",")) }

// HasCertificate reports whether NATS_TLS_CERT identifies this client.
func (n NATS) HasCertificate() bool { return n.tls != nil && len(n.tls.Certificates) > 0 }

// PublisherOptions connect a publisher that receives its acknowledgements below inbox, an inbox prefix.
func (n NATS) PublisherOptions(name, inbox string) []nats.Option { return n.clientOptions(name, inbox) }

// WorkerOptions connect a worker. Whoever may listen below its inbox prefix sees every event on its way to a
// worker, so it is apart from the _INBOX of everybody, from operators and from the workers of another stream
// (docs/security.md).
func (n NATS) WorkerOptions(name string) []nats.Option {
	return n.clientOptions(name, n.inbox("worker"))
}

// OperatorOptions connect an operator, who reads the dead-letter stream.
func (n NATS) OperatorOptions(name string) []nats.Option {
	return n.clientOptions(name, n.inbox("operator"))
}

// inbox is the inbox prefix of a role: below _NOTIFIER, so that no permission for another client's inboxes
// includes it. Whoever may listen there sees the events, and a deny inside a wider permission does not filter
// what JetStream delivers.
func (n NATS) inbox(role string) string { return "_NOTIFIER." + n.Stream + "." + role }

// clientOptions are the authentication and TLS of the settings, a name that the server shows, and an inbox
// prefix.
func (n NATS) clientOptions(name, inbox string) []nats.Option {
	return slices.Concat(n.StrangerOptions(name), []nats.Option{nats.CustomInboxPrefix(inbox)}, n.auth.options)
}

// StrangerOptions connect a client without authentication, as anybody could.
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

// BrokenFiles lists the files with secrets that could not be read again, each with the reason, and without
// what is in them; empty: none.
func (n NATS) BrokenFiles() string { return n.auth.problems() }
