package feed

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"notifier/internal/event"
	"notifier/internal/outcome"
)

// What is kept of a message in flight, in bytes.
const (
	// perMessage is what a message takes in addition to its own bytes, 512 of it for the copy of its headers:
	// measured, rounded up.
	perMessage   = 1024
	plainHeaders = 512     // headers that take no more than this are kept as they are
	ownHeaders   = 4 << 10 // no more of a publisher's own headers is kept, names included
)

// neededHeaders determine what becomes of an event; in lower case. They are kept whatever their length, which
// the budget bounds.
var neededHeaders = map[string]bool{
	"nats-msg-id": true, "notifier-event-id": true, "notifier-source": true, "content-type": true,
	"ce-id": true, "ce-specversion": true, "ce-source": true, "ce-type": true, "ce-time": true,
	"ce-datacontenttype": true,
	"traceparent":        true, "tracestate": true,
}

// keep is what a worker keeps of a message, and what that costs of the budget in bytes: never more than the
// message's own size and perMessage. A payload of more than mostPayload bytes (0: there is no bound) is cut,
// because it is never decoded, and headers that nothing needs are dropped. What is kept then is a copy, so
// that it does not keep the whole message in memory.
func keep(message *nats.Msg, mostPayload int) (event.Message, int64) {
	kept := event.Message{Subject: message.Subject, Header: message.Header, Data: message.Data}
	headers := message.Size() - len(message.Subject) - len(message.Reply) - len(message.Data)
	cut := mostPayload > 0 && len(message.Data) > max(mostPayload, event.KeptOfTooLarge)
	if headers <= plainHeaders && !cut {
		return kept, int64(perMessage + message.Size())
	}
	if cut {
		kept.Data, kept.DataBytes = message.Data[:event.KeptOfTooLarge], len(message.Data)
	}
	kept.Data = bytes.Clone(kept.Data) // it is part of one buffer with the headers
	kept.Header, headers = keepHeaders(message.Header)
	return kept, int64(perMessage + len(message.Subject) + len(message.Reply) + headers + len(kept.Data))
}

// keepHeaders is a copy of the headers that are needed, and of the publisher's own as far as ownHeaders
// allows, in the order of their names so that each delivery keeps the same. It returns their size in bytes,
// too.
func keepHeaders(header nats.Header) (kept nats.Header, size int) {
	own := 0
	kept = nats.Header{}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		length := sizeOfHeader(name, header[name])
		if !neededHeaders[strings.ToLower(name)] {
			if outcome.OwnHeader(name) || !outcome.PublishableHeader(name) || own+length > ownHeaders {
				continue
			}
			own += length
		}
		size += length
		values := make([]string, len(header[name]))
		for i, value := range header[name] {
			values[i] = strings.Clone(value)
		}
		kept[strings.Clone(name)] = values
	}
	return kept, size
}

// sizeOfHeader is what a header takes in a message: a line for each value.
func sizeOfHeader(name string, values []string) int {
	size := 0
	for _, value := range values {
		size += len(name) + len(value) + len(":\r\n")
	}
	return size
}
