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

// Bounds of a message in flight, in bytes.
const (
	// perMessage is the overhead of a message, measured and rounded up; 512 of it are for a copy of its headers.
	perMessage   = 1024
	plainHeaders = 512     // shorter headers are kept as they are
	ownHeaders   = 4 << 10 // bounds a publisher's own headers, names included
)

// neededHeaders, in lower case, decide on an event. They are kept whatever their length; the budget bounds them.
var neededHeaders = map[string]bool{
	"nats-msg-id": true, "notifier-event-id": true, "notifier-source": true, "content-type": true,
	"ce-id": true, "ce-specversion": true, "ce-source": true, "ce-type": true, "ce-time": true,
	"ce-datacontenttype": true,
	"traceparent":        true, "tracestate": true,
	// of the server's own messages
	"nats-marker-reason": true, "nats-pending-messages": true, "nats-incr": true,
}

// keep returns the parts of a message that a worker needs, and the bytes of the budget that they take, at
// most the message's size and perMessage. If mostPayload is above zero, a longer payload is cut, because it
// is never decoded. Headers that nothing needs are dropped. A shortened message is copied, or the whole one
// would stay in memory.
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

// keepHeaders copies the needed headers, and the publisher's own up to ownHeaders, in the order of their names:
// each delivery keeps the same. It also returns their size in bytes.
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

// sizeOfHeader returns the bytes of a header in a message: a line for each value.
func sizeOfHeader(name string, values []string) int {
	size := 0
	for _, value := range values {
		size += len(name) + len(value) + len(":\r\n")
	}
	return size
}
