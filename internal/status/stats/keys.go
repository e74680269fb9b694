package stats

import (
	"strconv"

	"notifier/internal/ratelimit"
)

// Keys are the names of what is kept in Redis in addition to the limits, for this package and for the digest,
// which reads and removes the drops that the Recorder counts. Package ratelimit has the names of its own
// keys: no script uses keys of both. The prefix is the same, so that all keys of a namespace share a hash
// slot of a Cluster.
//
//	{notifier}:counts:<minute>   hash        outcome/reason/category -> events; minute: minutes since 1970
//	{notifier}:sources:<slot>    hash        "sent, refused or else", category and source, with tabs between them -> events; slot:
//	                                         tens of minutes since 1970
//	{notifier}:lastsent          sorted set  category -> microsecond at which an event of it was last sent
//	{notifier}:replicas          hash        replica -> "<microsecond> <heartbeat as JSON>"
//	{notifier}:steering          hash        what operators have asked for, and its version; see package steering
//	{notifier}:flushed:<run>     string      number of the last flush of one run of a replica
//	{notifier}:digest:pending    hash        "reason limit category" -> drops that no digest has reported yet, and
//	                                         since -> microsecond at which the first of them was counted
//	{notifier}:digest:posting    hash        the same, of the digest that is being posted; at -> microsecond at which it
//	                                         was copied, begun -> 1 once it may be in Slack
//	{notifier}:digest:lease      string      "<microsecond at which it ends> <token>": who may post it
//	{notifier}:digest:state      hash        next: microsecond before which no replica posts; failures: attempts in a
//	                                         row that failed; token: of the last attempt that was finished
//	{notifier}:digest:message    string      the last digest that may still be edited, as JSON
type Keys struct{ prefix string }

// NewKeys returns the names within a namespace. The error describes what is wrong with the namespace.
func NewKeys(namespace string) (Keys, error) {
	if err := ratelimit.ValidateNamespace(namespace); err != nil {
		return Keys{}, err
	}
	return Keys{prefix: "{" + namespace + "}:"}, nil
}

func (k Keys) counts(minute int64) string {
	return k.prefix + "counts:" + strconv.FormatInt(minute, 10)
}
func (k Keys) sources(slot int64) string {
	return k.prefix + "sources:" + strconv.FormatInt(slot, 10)
}
func (k Keys) lastSent() string          { return k.prefix + "lastsent" }
func (k Keys) replicas() string          { return k.prefix + "replicas" }
func (k Keys) flushed(run string) string { return k.prefix + "flushed:" + run }

// Steering holds what operators have asked for.
func (k Keys) Steering() string { return k.prefix + "steering" }

// Pending holds the drops that no digest has reported yet.
func (k Keys) Pending() string { return k.prefix + "digest:pending" }

// Posting holds the drops of the digest that is being posted.
func (k Keys) Posting() string { return k.prefix + "digest:posting" }

// Lease holds which replica posts the digest.
func (k Keys) Lease() string { return k.prefix + "digest:lease" }

// State holds when the next digest is due.
func (k Keys) State() string { return k.prefix + "digest:state" }

// Message holds the last digest that may still be edited.
func (k Keys) Message() string { return k.prefix + "digest:message" }
