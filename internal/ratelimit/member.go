package ratelimit

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A member stands for one event in the sets and hashes. An id counts within its category, and a CloudEvent's
// together with its source, so that nobody can suppress the events of another category by using their ids:
//
//	errors:e1             the event "e1" of the category "errors"
//	errors~Y29mZmVl:e1    the same id with a source: a mark and the tag of the source come before the colon
//	~<hash>               where one of the parts is long, is not printable or could pass for the form itself
//
// What stands before the first colon is never of the publisher's choosing: the subject sets the category, and
// a tag is a hash. So no id passes for one of another category, nor for one with another source.
const (
	// Redis keeps a small sorted set compact only while its members are at most 64 bytes. A slot in a log
	// also has its time, so up to 47 bytes of member fit there.
	longestPlainMember = 56
	// A tag has 48 bits. Whoever may publish to the category can use the same source anyway, so only chance
	// has to be kept from making two sources alike.
	tagBytes    = 6
	memberMark  = '~' // before a hash and before a tag
	memberColon = ':' // before the id
)

// longestSource is the longest name of a source in the index, in bytes.
const longestSource = 128

// sourceName is a source as the index keeps it: itself if it is short and printable, else its hash after a
// mark.
func sourceName(source string) string {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	if len(source) <= longestSource && !strings.HasPrefix(source, string(memberMark)) &&
		utf8.ValidString(source) && !strings.ContainsFunc(source, unprintable) {
		return source
	}
	sum := sha256.Sum256([]byte(source))
	return string(memberMark) + base64.RawURLEncoding.EncodeToString(sum[:])
}

// origin is what the ids of one category, or of one source within a category, have in common.
type origin struct {
	category string
	source   string // as sourceName returns it; empty: none
	prefix   string // of their members, up to the colon; empty: all of them are hashes
}

// newOrigin takes the source as sourceName returns it.
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

// member is the event with this id.
func (o origin) member(id string) string {
	if o.prefix != "" && len(o.prefix)+len(id) <= longestPlainMember && printable(id) {
		return o.prefix + id
	}
	// The lengths keep apart what only together reads the same.
	var hashed []byte
	for _, part := range []string{o.category, o.source} {
		hashed = binary.AppendUvarint(hashed, uint64(len(part)))
		hashed = append(hashed, part...)
	}
	sum := sha256.Sum256(append(hashed, id...))
	return string(memberMark) + base64.RawURLEncoding.EncodeToString(sum[:])
}

// member is the request's event.
func (r Request) member() string { return newOrigin(r.Category, sourceName(r.Source)).member(r.ID) }

// printable reports whether a text is printable ASCII without a space.
func printable(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}
