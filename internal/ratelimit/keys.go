package ratelimit

import (
	"fmt"
	"strings"
)

// keys are the names of the limiter's keys. Each starts with the namespace in braces: Redis Cluster hashes only what is
// between the first pair of braces, so all keys of one namespace share a hash slot and one script may use them together.
//
//	{notifier}:global             sorted set  a scope that keeps each event: member -> microsecond of admission; see member.go for
//	                                          what stands for an event
//	{notifier}:category:<name>    sorted set  the same, for one category
//	{notifier}:group:<name>       sorted set  the same, for the categories of one group together
//	{notifier}:buckets:<scope>    sorted set  a scope that is counted in buckets, for example buckets:category:<name>:
//	                                          "<slots before> <slots with it> <first admission>" -> last
//	                                          microsecond of the bucket
//	{notifier}:register           sorted set  member in flight -> microsecond of admission or of its last post; and marks
//	{notifier}:inflight           hash        member -> "<microsecond> <delivery>", admitted and not yet sent; once posts
//	                                          have begun "<microsecond>:<posts>:<microsecond and name of the last> <delivery>"
//	{notifier}:sent               sorted set  member -> microsecond at which it was recorded as sent
//	{notifier}:categories         sorted set  category, or "<category> <source>" -> microsecond of its last admission,
//	                                          to the second; see index.go
//	{notifier}:pauses             sorted set  channel, or "*" for the workspace -> microsecond at which Slack's pause ends
//	{notifier}:probes             hash        channel or "*" -> the post that tests whether Slack accepts posts again
//	{notifier}:channels           hash        channel as the settings name it -> its ID
//	{notifier}:refusals           sorted set  channel -> microsecond at which Slack refused a post to it, for a second
//	{notifier}:healing            hash        of the store that is being healed: which replicas have put back what they remember
//	{notifier}:pace:<channel>     sorted set  name of a post -> microsecond from which it counts in the channel's pace
type keys struct{ prefix string }

func (k keys) global() string              { return k.prefix + "global" }
func (k keys) group(name string) string    { return k.prefix + "group:" + name }
func (k keys) category(name string) string { return k.prefix + "category:" + name }
func (k keys) register() string            { return k.prefix + "register" }
func (k keys) inFlight() string            { return k.prefix + "inflight" }
func (k keys) sent() string                { return k.prefix + "sent" }
func (k keys) categories() string          { return k.prefix + "categories" }
func (k keys) pauses() string              { return k.prefix + "pauses" }
func (k keys) probes() string              { return k.prefix + "probes" }
func (k keys) channels() string            { return k.prefix + "channels" }
func (k keys) refusals() string            { return k.prefix + "refusals" }
func (k keys) healing() string             { return k.prefix + "healing" }
func (k keys) pace(channel string) string  { return k.prefix + "pace:" + channel }

// bothForms are the two keys of a scope, by that of its exact form: as each event, and in buckets.
func (k keys) bothForms(exact string) []string {
	return []string{exact, k.prefix + "buckets:" + strings.TrimPrefix(exact, k.prefix)}
}

// typeOf is the type of a key, as damaged.lua takes it.
func (k keys) typeOf(key string) string {
	if key == k.inFlight() || key == k.probes() || key == k.channels() || key == k.healing() {
		return "hash"
	}
	return "zset"
}

// ValidateNamespace returns an error that describes what is wrong with a namespace, or nil. A namespace with braces would
// move keys to different hash slots.
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
