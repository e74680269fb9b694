// Package outcome defines the Record of an event's end, the words in it, and the names of the headers that carry
// them.
//
// The words are a closed list. Logs, metrics, dead letters, "why" and the status page all use them. An event without
// one of these outcomes still waits.
package outcome

import "strings"

// Outcomes.
const (
	Sent    = "sent"    // it is in Slack
	Dropped = "dropped" // it may not be sent
	Dead    = "dead"    // it can never be sent, and is kept as a dead letter
)

// Reasons of Dropped.
const (
	Global    = "global"    // refused by the global limit
	Group     = "group"     // refused by the limit that the categories of its group share
	Category  = "category"  // refused by the category's limit
	Muted     = "muted"     // an operator has muted its category
	Duplicate = "duplicate" // its id was sent already, or is another event's in flight
	Expired   = "expired"   // older than EVENT_MAX_AGE
	Reply     = "reply"     // a message that the server itself wrote into the stream, so no event
)

// Reasons of Dead.
const (
	Malformed     = "malformed"      // the payload, its fields or the category are not as documented
	TooLarge      = "too_large"      // larger than EVENT_MAX_BYTES; the payload was not decoded
	Unroutable    = "unroutable"     // it names a channel that the settings do not name
	SlackRejected = "slack_rejected" // Slack refuses it for good
	Undeliverable = "undeliverable"  // Slack kept failing on it while it took other events
)

// Outcomes lists the outcomes, the common one first.
func Outcomes() []string { return []string{Sent, Dropped, Dead} }

// IsDrop reports whether an event was dropped. A message that the server wrote into the stream was no event.
func IsDrop(became, reason string) bool { return became == Dropped && reason != Reply }

// LimitReasons lists the reasons of Dropped that are limits, the one that most categories share first.
func LimitReasons() []string { return []string{Global, Group, Category} }

// DeadReasons lists the reasons of Dead, in the order in which people are shown them.
func DeadReasons() []string {
	return []string{Malformed, TooLarge, Unroutable, SlackRejected, Undeliverable}
}

// Undecodable lists the reasons of Dead that the limiter never sees. Nothing limits how many such events a
// publisher sends, so their dead letters are limited.
func Undecodable() []string { return []string{Malformed, TooLarge, Unroutable} }

// Headers of NATS messages. HeaderEventID and HeaderSource are read from events as well; all but HeaderMsgID
// are on dead letters and on republished drops.
const (
	HeaderMsgID   = "Nats-Msg-Id"       // the publisher's id, by which JetStream itself drops duplicates
	HeaderEventID = "Notifier-Event-Id" // the event's id; it goes before HeaderMsgID and the payload's
	// names who caused the event; ignored on CloudEvents, which name it themselves, and set on letters if known
	HeaderSource    = "Notifier-Source"
	HeaderReason    = "Notifier-Reason"     // one of the reasons above
	HeaderDetail    = "Notifier-Detail"     // the fault, or Slack's error code; may be absent
	HeaderSubject   = "Notifier-Subject"    // the subject that the event was published to
	HeaderStreamSeq = "Notifier-Stream-Seq" // its sequence in its stream; absent where it had none
	HeaderTime      = "Notifier-Time"       // when its outcome was decided, RFC 3339
	// only when the letter lacks a part of the payload, or the publisher's headers: the payload's length in
	// bytes
	HeaderShortened = "Notifier-Shortened"
)

// HeaderPrefix begins the name of every header of notifier's own.
const HeaderPrefix = "Notifier-"

// OwnHeader reports whether a header is notifier's or the NATS server's, so that a publisher's value is not
// copied to a letter. The server takes its own as instructions when a message is published ("expect the last
// sequence to be ...", "roll up"): copied from an event they could make the dead-letter stream refuse the
// letter, or wipe itself.
func OwnHeader(name string) bool {
	const server = "Nats-"
	if strings.HasPrefix(name, server) {
		return true
	}
	return len(name) >= len(HeaderPrefix) && strings.EqualFold(name[:len(HeaderPrefix)], HeaderPrefix)
}

// PublishableHeader reports whether nats.go publishes a header of this name. It receives more than that.
func PublishableHeader(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"()/,:;<=>?@[\]{}`, r)
	})
}
