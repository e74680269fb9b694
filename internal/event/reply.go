package event

import (
	"bytes"
	"encoding/json"
	"fmt"

	"notifier/internal/outcome"
)

// acknowledgement is what JetStream answers to a publisher (PubAck in its protocol). It goes to the reply
// subject that the publisher has chosen: where that is a subject of events, the stream stores it as one.
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

// replyRejection is the Rejection of a message that is a stream's answer to a publisher, and nil for any
// other. Such a message has no headers, begins as the server writes it, and has the fields of an answer and
// no others; so an event that could be sent is never taken for one. Any stream's answer is one: who may
// publish to another stream can have its answers sent here, too.
func replyRejection(m Message) *Rejection {
	answer := bytes.HasPrefix(m.Data, []byte(`{"stream":`)) || bytes.HasPrefix(m.Data, []byte(`{"error":`))
	if !answer || len(m.Header) > 0 {
		return nil
	}
	var ack acknowledgement
	fields := json.NewDecoder(bytes.NewReader(m.Data))
	fields.DisallowUnknownFields()
	err := fields.Decode(&ack)
	if err != nil || fields.InputOffset() != int64(len(m.Data)) || ack.Sequence == nil || ack.Stream == nil {
		return nil
	}
	return &Rejection{
		outcome.Reply,
		fmt.Sprintf(
			"it is the answer of the stream %.60q to what was published with this reply subject",
			*ack.Stream,
		),
	}
}
