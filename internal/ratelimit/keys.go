package ratelimit

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// keys builds the names of the limiter's keys. Each starts with the namespace in braces, which Redis Cluster
// uses as the hash tag: all keys of a namespace share a slot, so one script can use them together.
//
//	{notifier}:global           sorted set  log of a scope: "<member> <time>" per slot -> time of admission
//	{notifier}:category:<name>  sorted set  log of one category
//	{notifier}:group:<name>     sorted set  log of one group
//	{notifier}:buckets:<scope>  sorted set  buckets of a scope such as category:<name>: "<slots before> <slots
//	                                        with it> <first admission>" -> last microsecond of the bucket
//	{notifier}:meta             hash        clock and token of the store, the time until which it is closed,
//	                                        latest admission of each worker; see admit.lua
//	{notifier}:inflight         hash        member -> "<time>[g]:<posts>:<time of the last post>:<its name>
//	                                        <delivery>" of an admitted, unsettled event; g if it is charged
//	                                        to a group
//	{notifier}:sent             sorted set  member -> time at which the event was recorded as sent
//	{notifier}:categories       sorted set  the index of origins: "<category>" or "<category> <source>" -> time of its last admission
//	{notifier}:pauses           sorted set  channel, or "*" for the workspace -> end of Slack's pause
//	{notifier}:probes           hash        channel or "*" -> the post that tests whether Slack accepts posts
//	                                        again; and the channel refused since the last successful post
//	{notifier}:pace:<channel>   sorted set  name of a post -> time from which it counts in the channel's pace
//	{notifier}:pacewaiting:<channel>  hash  worker -> its post that has waited longest for the channel's pace
//
// Times are microseconds since 1970. Channels have the names of the settings: if some events name a channel
// by its ID and others by its name, its pace counts twice.
type keys struct{ prefix string }

func newKeys(namespace string) (keys, error) {
	if err := ValidateNamespace(namespace); err != nil {
		return keys{}, err
	}
	return keys{prefix: "{" + namespace + "}:"}, nil
}

// ValidateNamespace returns an error if a namespace is empty or has a brace, blank, tab or line end. Without
// a hash tag, as for an empty one, or with another tag, Redis Cluster would spread the keys over slots.
func ValidateNamespace(namespace string) error {
	if namespace == "" || strings.ContainsAny(namespace, "{} \t\r\n") {
		return fmt.Errorf("namespace %q, expected a name without braces and whitespace", namespace)
	}
	return nil
}

func (k keys) meta() string               { return k.prefix + "meta" }
func (k keys) inFlight() string           { return k.prefix + "inflight" }
func (k keys) sent() string               { return k.prefix + "sent" }
func (k keys) categories() string         { return k.prefix + "categories" }
func (k keys) pauses() string             { return k.prefix + "pauses" }
func (k keys) probes() string             { return k.prefix + "probes" }
func (k keys) pace(channel string) string { return k.prefix + "pace:" + channel }

func (k keys) paceWaiting(channel string) string { return k.prefix + "pacewaiting:" + channel }

// scope returns the two keys of a scope: its log and its buckets.
func (k keys) scope(s scope) []string {
	name := "global"
	switch s.level {
	case Group:
		name = "group:" + s.name
	case Category:
		name = "category:" + s.name
	}
	return []string{k.prefix + name, k.prefix + "buckets:" + name}
}

// isRedisHash reports whether a key is a hash. All others are sorted sets.
func (k keys) isRedisHash(key string) bool {
	return slices.Contains([]string{k.meta(), k.inFlight(), k.probes()}, key) ||
		strings.HasPrefix(key, k.paceWaiting(""))
}

// A member identifies one event in the sets and hashes. Ids are unique within a category, and within a source
// if the event has one, so no publisher can suppress the events of another category:
//
//	errors:e1             the event "e1" of the category "errors"
//	errors~Y29mZmVl:e1    the same id with a source: a mark and a tag of the source precede the colon
//	~<hash>               used if a part is long, not printable, or contains the separators
//
// Publishers cannot choose the text before the first colon: the subject determines the category, and a tag is
// a hash. So an id cannot imitate another category or source.
const (
	// Longer members are hashed to 44 bytes. Redis stores a small sorted set compactly while its members have
	// at most 64 bytes, and a log adds 17 to each: a member of 48 to 56 bytes makes its log larger and stays
	// readable.
	maxPlainMember = 56
	tagBytes       = 6 // against accidents only: publishers of a category can use any source there anyway
	memberMark     = '~'
	memberColon    = ':'
)

// maxSource bounds the name of a source in the index, in bytes.
const maxSource = 128

// sourceName returns the name of a source in the index: the source, or a mark and its hash if it is long or
// not printable.
func sourceName(source string) string {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	if len(source) <= maxSource && !strings.HasPrefix(source, string(memberMark)) &&
		utf8.ValidString(source) && !strings.ContainsFunc(source, unprintable) {
		return source
	}
	return digestName([]byte(source))
}

func digestName(text []byte) string {
	sum := sha256.Sum256(text)
	return string(memberMark) + base64.RawURLEncoding.EncodeToString(sum[:])
}

// origin is a namespace of ids: a category, or one source within a category.
type origin struct {
	category string
	source   string // a result of sourceName. Empty if events have no source.
	prefix   string // of plain members, with the colon. Empty if all members are hashes.
}

// newOrigin expects a source as sourceName returns it.
func newOrigin(category, source string) origin {
	o := origin{category: category, source: source}
	if category == "" || !printable(category) ||
		strings.ContainsAny(category, string(memberColon)+string(memberMark)) {
		return o
	}
	o.prefix = category
	if o.source != "" {
		sum := sha256.Sum256([]byte(o.source))
		o.prefix += string(memberMark) + base64.RawURLEncoding.EncodeToString(sum[:tagBytes])
	}
	o.prefix += string(memberColon)
	return o
}

func (o origin) member(id string) string {
	if o.prefix != "" && len(o.prefix)+len(id) <= maxPlainMember && printable(id) {
		return o.prefix + id
	}
	// Without the lengths, moving a letter from one part to the next would not change the hash.
	var hashed []byte
	for _, part := range []string{o.category, o.source} {
		hashed = binary.AppendUvarint(hashed, uint64(len(part)))
		hashed = append(hashed, part...)
	}
	return digestName(append(hashed, id...))
}

func (r Request) member() string { return newOrigin(r.Category, sourceName(r.Source)).member(r.ID) }

// printable reports whether text is printable ASCII without spaces.
func printable(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// indexEntry returns the entry of a category and a source in the index of origins, through which an event is
// found by its id alone. Categories come from subjects, so they contain no spaces.
func indexEntry(category, source string) string {
	if source == "" {
		return category
	}
	return category + " " + source
}

// parseIndexEntry splits an entry of the index.
func parseIndexEntry(entry string) (category, source string) {
	category, source, _ = strings.Cut(entry, " ")
	return category, source
}
