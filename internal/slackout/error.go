package slackout

import (
	"fmt"
	"time"
)

// Class is a kind of failure: it determines what to do with an event that could not be posted.
type Class int

// The classes of failure, a closed list.
const (
	// Slack asks to wait: hold the event and pause every replica, for Error.RetryAfter if Slack names a time
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

// Error is why an event was not posted, or may not have been. No field holds a secret or anything from the
// event, so it can be printed in any way.
type Error struct {
	Class Class
	// Code is Slack's own ("channel_not_found") or one of this package's: canceled, timeout, dns_error,
	// connection_refused, connection_reset, tls_error, network_error, http_<status>, invalid_response, no_code.
	Code string
	// RetryAfter is the shortest wait before the next attempt: what Slack asks for with the class RetryAfter,
	// from 1 s to 1 h, and with Retry if Slack is known to take long. 0: no time was named, the caller backs off
	// by its own rules.
	RetryAfter time.Duration
	// ChannelRefused reports, with the class Rejected, what Slack refuses: the channel, which would refuse any
	// other message as well, or else this message. An unknown code counts against the message.
	ChannelRefused bool

	// Workspace reports that the failure concerns every channel, not only that of this post: Slack could not be
	// reached, or refuses the credentials, or the whole workspace.
	Workspace bool

	cause error // context.Canceled, context.DeadlineExceeded or nil: nothing that could hold a secret
}

// Error names the class and the code.
func (e *Error) Error() string {
	s := "slack: " + e.Class.String() + ": " + e.Code
	if e.RetryAfter > 0 {
		s += " (wait " + e.RetryAfter.String() + ")"
	}
	return s
}

// Unwrap returns the context's error when the caller's context ended the attempt, else nil.
func (e *Error) Unwrap() error { return e.cause }
