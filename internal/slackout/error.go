package slackout

import (
	"errors"
	"fmt"
	"time"

	"notifier/internal/cause"
)

// Class is a kind of failure. It determines how the caller handles an event that was not posted.
type Class int

// The classes of failure, a closed list.
const (
	// Slack is rate limiting: hold the event and pause every worker, for Error.RetryAfter if Slack names a
	// time
	RetryAfter Class = iota + 1
	Retry            // not posted, and not the event's fault: hold the event, try again
	Ambiguous        // may have been posted: try again, never refund
	Rejected         // not posted and never will be: the event's or its channel's fault
	// not posted; Slack refuses every event of this sender: hold all events, become not ready
	Credentials
)

// String names the class in one word, as logs and metrics show it.
func (c Class) String() string {
	switch c {
	case RetryAfter:
		return "rate_limited"
	case Retry:
		return "unavailable"
	case Ambiguous:
		return "ambiguous"
	case Rejected:
		return "rejected"
	case Credentials:
		return "credentials"
	}
	return fmt.Sprintf("class(%d)", int(c))
}

// Error describes a failed or ambiguous post. No field holds a credential, so it can be printed in any way.
type Error struct {
	Class Class
	// Code is Slack's own ("channel_not_found") or one of this package's: canceled, timeout, dns_error,
	// connection_refused, connection_reset, proxy_<status>, tls_error, network_error, http_<status>,
	// invalid_response, no_code.
	Code string
	// Explanation says more than the Code. It is Slack's own description of a mistake in the message, such as
	// "[ERROR] must be less than 151 characters [json-pointer:/blocks/0/text/text]". With the codes
	// network_error, tls_error and dns_error it is the cause, such as "x509: certificate signed by unknown
	// authority". If a proxy could not be reached, or makes no connection, it names the proxy. With
	// invalid_response it says what came back and from which host, without its bytes. It is one printable line
	// of at most 300 bytes, without credentials, and may be empty.
	Explanation string
	// Cause is the kind of a failure below HTTP, or "".
	Cause cause.Kind
	// RetryAfter is the shortest wait before the next attempt, from 1 s to 1 h. It is Slack's Retry-After
	// with the class RetryAfter, and with Retry a time for failures known to last. If it is zero, the caller
	// backs off by its own rules.
	RetryAfter time.Duration
	// ChannelRefused reports, with the class Rejected, that Slack refuses every message to the channel. If it
	// is false, Slack refuses this message. An unknown code counts against the message.
	ChannelRefused bool

	// Workspace reports that the failure affects every channel: Slack could not be reached, or refuses the
	// credentials or the whole workspace.
	Workspace bool

	// Unmarked reports, once for a Poster, that Slack refused the metadata of its messages: later messages have
	// none, and Find finds nothing.
	Unmarked bool

	ended error // context.Canceled, context.DeadlineExceeded or nil: nothing that could hold a secret
}

// AsError returns the *Error in err's tree. For an error without one it is Ambiguous with the code "unknown".
func AsError(err error) *Error {
	var failure *Error
	if errors.As(err, &failure) {
		return failure
	}
	return &Error{Class: Ambiguous, Code: "unknown"}
}

// Error names the class, the code and its explanation.
func (e *Error) Error() string {
	s := "slack: " + e.Class.String() + ": " + e.Detail()
	if e.RetryAfter > 0 {
		s += " (wait " + e.RetryAfter.String() + ")"
	}
	return s
}

// Detail returns the code, followed by the explanation if there is one.
func (e *Error) Detail() string {
	if e.Explanation == "" {
		return e.Code
	}
	return e.Code + ": " + e.Explanation
}

// Unwrap returns the context's error when the caller's context ended the attempt, else nil.
func (e *Error) Unwrap() error { return e.ended }
