package stats

import (
	"strconv"

	"notifier/internal/ratelimit"
)

// Keys names what is kept in Redis beside the limits, for this package and for the digest, which empties what the
// Recorder fills. Package ratelimit keeps the names of its own: no script uses keys of both. The prefix is the same, so
// that all keys of a namespace share a slot of a Cluster.
//
//	{notifier}:counts:<minute>   hash        outcome/reason/category -> events; minute: minutes since 1970
//	{notifier}:lastsent          sorted set  category -> microsecond at which an event of it was last sent
//	{notifier}:replicas          hash        replica -> "<microsecond> <heartbeat as JSON>"
//	{notifier}:flushed:<run>     string      number of the last flush of one run of a replica
//	{notifier}:digest:pending    hash        "reason limit category" -> drops that no digest has told yet, and
//	                                         since -> microsecond at which the first of them was counted
//	{notifier}:digest:posting    hash        the same, of the digest that is being posted; at -> microsecond at which it
//	                                         was copied, begun -> 1 once it may be in Slack
//	{notifier}:digest:lease      string      "<microsecond at which it ends> <token>": who posts it
//	{notifier}:digest:state      hash        next: microsecond before which nobody posts; failures: tries in a row that
//	                                         failed; token: of the last one that was finished
//	{notifier}:digest:message    string      the last digest that may still be edited, as JSON
type Keys struct{ prefix string }

// NewKeys gives the names within a namespace. The error says what is wrong with it.
func NewKeys(namespace string) (Keys, error) {
	if err := ratelimit.CheckNamespace(namespace); err != nil {
		return Keys{}, err
	}
	return Keys{prefix: "{" + namespace + "}:"}, nil
}

func (k Keys) counts(minute int64) string {
	return k.prefix + "counts:" + strconv.FormatInt(minute, 10)
}
func (k Keys) lastSent() string          { return k.prefix + "lastsent" }
func (k Keys) replicas() string          { return k.prefix + "replicas" }
func (k Keys) flushed(run string) string { return k.prefix + "flushed:" + run }

// Pending holds the drops that no digest has told yet.
func (k Keys) Pending() string { return k.prefix + "digest:pending" }

// Posting holds the drops of the digest that is being posted.
func (k Keys) Posting() string { return k.prefix + "digest:posting" }

// Lease says which replica posts the digest.
func (k Keys) Lease() string { return k.prefix + "digest:lease" }

// State says when the next digest is due.
func (k Keys) State() string { return k.prefix + "digest:state" }

// Message is the last digest that may still be edited.
func (k Keys) Message() string { return k.prefix + "digest:message" }
