package ratelimit

import (
	"fmt"
	"slices"
	"strings"
)

// keys are the names of the limiter's keys. Each starts with the namespace in braces: Redis Cluster hashes
// only what is between the first pair of braces, so all keys of one namespace share a hash slot and one
// script may use them together.
//
//	{notifier}:global           sorted set  the log of a scope: "<member> <time>" for each slot -> microsecond
//	                                        of admission; see member.go for what stands for an event
//	{notifier}:category:<name>  sorted set  the same, for one category
//	{notifier}:group:<name>     sorted set  the same, for the categories of one group together
//	{notifier}:buckets:<scope>  sorted set  the buckets of a scope, for example of category:<name>: "<slots
//	                                        before> <slots with it> <first admission>" -> last microsecond of
//	                                        the bucket
//	{notifier}:meta             hash        time of the latest admission, token and opening of the store, and
//	                                        up to when it has the admissions of each replica; see admit.lua
//	{notifier}:inflight         hash        member -> "<microsecond>[g]:<posts>:<microsecond of the last>:<its
//	                                        name> <delivery>": admitted and not yet settled
//	{notifier}:sent             sorted set  member -> microsecond at which it was recorded as sent
//	{notifier}:categories       sorted set  category, or "<category> <source>" -> microsecond of its last
//	                                        admission; see index.go
//	{notifier}:pauses           sorted set  channel, or "*" for the workspace -> microsecond at which Slack's
//	                                        pause ends
//	{notifier}:probes           hash        channel or "*" -> the post that tests whether Slack accepts posts
//	                                        again; and which channel was refused since a post was last made
//	{notifier}:pace:<channel>   sorted set  name of a post -> microsecond from which it counts in the channel's
//	                                        pace
//	{notifier}:pacewaiting:<channel>  hash  worker -> its post that has waited longest for the channel's pace;
//	                                        see begin.lua
//
// A channel is called what the settings call it.
type keys struct{ prefix string }

func (k keys) global() string              { return k.prefix + "global" }
func (k keys) group(name string) string    { return k.prefix + "group:" + name }
func (k keys) category(name string) string { return k.prefix + "category:" + name }
func (k keys) meta() string                { return k.prefix + "meta" }
func (k keys) inFlight() string            { return k.prefix + "inflight" }
func (k keys) sent() string                { return k.prefix + "sent" }
func (k keys) categories() string          { return k.prefix + "categories" }
func (k keys) pauses() string              { return k.prefix + "pauses" }
func (k keys) probes() string              { return k.prefix + "probes" }
func (k keys) pace(channel string) string  { return k.prefix + "pace:" + channel }

func (k keys) paceWaiting(channel string) string { return k.prefix + "pacewaiting:" + channel }

// bothForms are the two keys of a scope, its log and its buckets, by the first.
func (k keys) bothForms(log string) []string {
	return []string{log, k.prefix + "buckets:" + strings.TrimPrefix(log, k.prefix)}
}

// isHash reports whether a key is a hash; the others are sorted sets.
func (k keys) isHash(key string) bool {
	return slices.Contains([]string{k.meta(), k.inFlight(), k.probes()}, key) ||
		strings.HasPrefix(key, k.paceWaiting(""))
}

// ValidateNamespace returns an error that describes what is wrong with a namespace, or nil. A namespace with
// braces would move keys to different hash slots.
func ValidateNamespace(namespace string) error {
	if namespace == "" || strings.ContainsAny(namespace, "{} \t\r\n") {
		return fmt.Errorf("namespace %q, expected a name without braces and whitespace", namespace)
	}
	return nil
}

func newKeys(namespace string) (keys, error) {
	if err := ValidateNamespace(namespace); err != nil {
		return keys{}, err
	}
	return keys{prefix: "{" + namespace + "}:"}, nil
}
