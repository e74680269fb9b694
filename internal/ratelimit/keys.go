package ratelimit

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// keys are the names of the limiter's keys. Each starts with the namespace in braces: Redis Cluster hashes only what is
// between the first pair of braces, so all keys of one namespace share a hash slot and one script may use them together.
//
//	{notifier}:global             sorted set  id -> microsecond of admission
//	{notifier}:category:<name>    sorted set  the same, for one category
//	{notifier}:inflight           hash        id -> "<microsecond> <delivery>", admitted and not yet sent; once posts
//	                                          have begun "<microsecond>:<posts>:<microsecond and name of the last> <delivery>"
//	{notifier}:sent               sorted set  id -> microsecond at which it was recorded as sent
//	{notifier}:pause              string      microsecond until which no replica posts to Slack
//	{notifier}:probe              string      name of the post with which one replica tests whether Slack accepts posts again
type keys struct{ prefix string }

func (k keys) global() string              { return k.prefix + "global" }
func (k keys) category(name string) string { return k.prefix + "category:" + name }
func (k keys) inFlight() string            { return k.prefix + "inflight" }
func (k keys) sent() string                { return k.prefix + "sent" }
func (k keys) pause() string               { return k.prefix + "pause" }
func (k keys) probe() string               { return k.prefix + "probe" }

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

// Lengths of members in bytes. Redis keeps a small sorted set compact only while its members are at most 64 bytes.
const (
	longestPlainMember = 56 // leaves room for the " 1000000" that further slots of a costly event append
	hashedMark         = '~'
)

// member is an event id as the scripts see it: the id itself if it is short, printable and without a space, else its
// hash after a mark. An id that begins with the mark is hashed too, so that no id can pass for another's hash.
func member(id string) string {
	if len(id) > 0 && len(id) <= longestPlainMember && id[0] != hashedMark {
		plain := true
		for i := range len(id) {
			if id[i] <= ' ' || id[i] > '~' {
				plain = false
				break
			}
		}
		if plain {
			return id
		}
	}
	sum := sha256.Sum256([]byte(id))
	return string(hashedMark) + base64.RawURLEncoding.EncodeToString(sum[:])
}
