package settings

import (
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/redact"
)

// NATSTimeout bounds connecting to NATS.
const NATSTimeout = 5 * time.Second

// PublisherInbox is the default inbox prefix of "notifier publish". It is not below _INBOX, because a
// permission for _INBOX would include the inboxes of all other clients.
const PublisherInbox = "_INBOX_publisher"

// Servers lists the servers without users, passwords and tokens.
func (n NATS) Servers() string { return redact.Servers(strings.Split(n.URL, ",")) }

// HasCertificate reports whether NATS_TLS_CERT identifies this client.
func (n NATS) HasCertificate() bool { return n.Cert != "" }

// hasTLS reports whether a TLS file is set.
func (n NATS) hasTLS() bool { return n.CA != "" || n.Cert != "" }

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

// clientOptions authenticate with nats.go's own options, which read their files at each connection, so that
// they may be replaced while a worker runs.
func (n NATS) clientOptions(name, inbox string) []nats.Option {
	options := []nats.Option{nats.Name(name), nats.Timeout(NATSTimeout), nats.CustomInboxPrefix(inbox)}
	if n.CA != "" {
		options = append(options, nats.RootCAs(n.CA))
	}
	if n.Cert != "" {
		options = append(options, nats.ClientCert(n.Cert, n.Key))
	}
	if n.Creds != "" {
		options = append(options, nats.UserCredentials(n.Creds))
	}
	if n.NKey != "" {
		options = append(options, n.useNKey)
	}
	return options
}

// useNKey is nats.NkeyOptionFromSeed, with its error at the connection.
func (n NATS) useNKey(options *nats.Options) error {
	use, err := nats.NkeyOptionFromSeed(n.NKey)
	if err != nil {
		return err
	}
	return use(options)
}

// RenewNKey sets the public key of NATS_NKEY_FILE in the options of a connection, because nats.go keeps the
// first one. Call it before each reconnection, while nats.go locks the connection. If the file cannot be
// read, the reconnection itself fails, and says so.
func (n NATS) RenewNKey(options *nats.Options) {
	if n.NKey != "" {
		_ = n.useNKey(options)
	}
}
