package slackout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"notifier/internal/term"
)

// notSlack is the code for a 2xx response that is not Slack's.
const notSlack = "invalid_response"

// NotSlack reports whether the post got a 2xx response that is not Slack's: from a captive portal, a proxy,
// or another chat server at the webhook's URL. The request was processed by something, so the message may be
// shown somewhere. It does not count as sent: a login page has the same status.
func (e *Error) NotSlack() bool { return e.Class == Ambiguous && e.Code == notSlack }

// foreign classifies a 2xx response that is not Slack's. The explanation quotes nothing of it, because it
// could echo the event or the webhook's URL.
func foreign(x *exchange) *Error {
	kind := bodyKind(x.body)
	if errors.Is(x.err, errReplyTooLong) {
		kind = "more than " + term.Size(maxReply)
	}
	return &Error{
		Class: Ambiguous, Code: notSlack,
		Explanation: fmt.Sprintf("%s replied %d with %s", x.host, x.status, kind),
	}
}

// bodyKind describes a body by its size and kind.
func bodyKind(body []byte) string {
	text := bytes.TrimSpace(body)
	kind := "text"
	switch {
	case len(body) == 0:
		return "an empty body"
	case !utf8.Valid(body):
		kind = "binary data"
	case bytes.HasPrefix(text, []byte("<")):
		kind = "HTML"
	case bytes.ContainsAny(text[:min(len(text), 1)], "{[") && json.Valid(text):
		kind = "JSON"
	}
	return term.Count(len(body), "byte") + " of " + kind
}
