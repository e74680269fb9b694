package event

import (
	"bytes"
	"encoding/json"
	"fmt"

	"notifier/internal/outcome"
)

// Headers with which the server marks messages that it writes by itself.
const (
	headerMarker  = "Nats-Marker-Reason"    // a delete marker: the last event of a subject expired or was removed
	headerPending = "Nats-Pending-Messages" // a pull request ended
)

// replyRejection returns the Rejection of a message that the server wrote by itself, and nil for any other.
//
// A stream of events gets such messages where a publisher chooses a subject of events as its reply subject,
// and where the stream keeps delete markers. A scheduled message has a publisher's payload, so it
// is an event although the server writes it.
//
// No rule matches an event that could be sent. A publisher who imitates the server only loses its dead
// letter.
func replyRejection(m Message) *Rejection {
	what := serverMessage(m)
	if what == "" {
		return nil
	}
	return &Rejection{outcome.Reply, "it is " + what}
}

// serverMessage names the kind of message that the server wrote. It returns "" for a publisher's.
func serverMessage(m Message) string {
	switch {
	case len(m.Data) == 0:
		return emptyServerMessage(m.Header)
	case declaresText(m): // it is posted as it is, whatever it looks like
		return ""
	case bytes.HasPrefix(m.Data, []byte(`{"type":"io.nats.`)):
		return apiMessage(m.Data)
	case len(m.Header) == 0:
		return acknowledgementOf(m.Data)
	}
	return ""
}

// emptyServerMessage names the kind of a message without payload. The server stores a status without its
// code, so one that has no header either cannot be told from a publisher's.
func emptyServerMessage(header map[string][]string) string {
	reason := header[headerMarker]
	switch {
	case len(reason) > 0:
		return fmt.Sprintf("the server's delete marker (%.20q)", reason[0])
	case header[headerPending] != nil:
		return "the server's reply to a request with this reply subject"
	}
	return ""
}

// apiMessage names a reply of JetStream's API, or an advisory. Both begin with their type, and have nothing
// that could be shown.
func apiMessage(data []byte) string {
	fields := objectFields(data)
	for _, name := range []string{"text", "blocks", "attachments", "specversion"} {
		if fields[name] != nil {
			return ""
		}
	}
	var kind string
	if json.Unmarshal(fields["type"], &kind) != nil {
		return ""
	}
	return fmt.Sprintf("the server's message %.80q", kind)
}

// acknowledgement is the reply of a stream to a publisher (PubAck in NATS's protocol). The server sends it to
// the reply subject that the publisher has chosen.
type acknowledgement struct {
	Error *struct {
		Code        int    `json:"code"`
		ErrCode     int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
	Stream    *string `json:"stream"`
	Sequence  *uint64 `json:"seq"`
	Domain    string  `json:"domain"`
	Duplicate bool    `json:"duplicate"`
	Value     string  `json:"val"`
	Batch     string  `json:"batch"`
	Count     uint64  `json:"count"`
}

// acknowledgementOf names the stream that sent an acknowledgement. Any stream's counts: a publisher to
// another stream can have its replies sent to subjects of events, too.
func acknowledgementOf(data []byte) string {
	if !bytes.HasPrefix(data, []byte(`{"stream":`)) && !bytes.HasPrefix(data, []byte(`{"error":`)) {
		return ""
	}
	var ack acknowledgement
	if !decodeOnly(data, &ack) || ack.Sequence == nil || ack.Stream == nil {
		return ""
	}
	return fmt.Sprintf("the answer of the stream %.60q to what was published with this reply subject", *ack.Stream)
}

// decodeOnly decodes a JSON object into a struct. It reports whether there are no other fields, and nothing
// after the object.
func decodeOnly(data []byte, into any) bool {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into) == nil && decoder.InputOffset() == int64(len(data))
}

func declaresText(m Message) bool {
	contentType, _ := HeaderValue(m.Header, "content-type")
	return parseMediaType(contentType) == "text/plain"
}

// objectFields returns the fields of a JSON object, or nil for anything else.
func objectFields(data []byte) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil
	}
	return fields
}
