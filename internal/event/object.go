package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"notifier/internal/outcome"
	"notifier/internal/term"
)

const (
	maxBlocks = 50 // Slack refuses a message with more
	maxDepth  = 32 // several times as deep as anything that Slack accepts
)

// The JSON types as a Rejection names them.
const (
	jsonObject  = "an object"
	jsonArray   = "an array"
	jsonString  = "a string"
	jsonNumber  = "a number"
	jsonBoolean = "a boolean"
	jsonNull    = "null"
)

// readObject sets the event from the fields of the JSON object form.
func (d *decoding) readObject(o *object) *Rejection {
	// The id comes first, so that a Rejection for any of the other fields is logged with it.
	if !d.inCloudEvent {
		id, rejection := o.string("id")
		if rejection == nil {
			rejection = d.setPayloadID("id", id)
		}
		if rejection != nil {
			return rejection
		}
		at, rejection := o.string("time")
		if rejection == nil {
			rejection = d.setTime("time", at)
		}
		if rejection != nil {
			return rejection
		}
	}
	text, rejection := o.string("text")
	if rejection != nil {
		return rejection
	}
	if d.Blocks, rejection = o.list("blocks", maxBlocks); rejection != nil {
		return rejection
	}
	if d.Attachments, rejection = o.list("attachments", math.MaxInt); rejection != nil {
		return rejection
	}
	if d.Blocks == nil && d.Attachments == nil || !blank(text) {
		if rejection = d.readText(text); rejection != nil {
			return rejection
		}
	}
	if rejection = d.setCost(o); rejection != nil {
		return rejection
	}
	if rejection = d.setThread(o); rejection != nil {
		return rejection
	}
	return d.setChannel(o)
}

func (d *decoding) setCost(o *object) *Rejection {
	raw, ok := o.get("cost")
	if !ok {
		return nil
	}
	if is := jsonType(raw); is != jsonNumber {
		return o.wrongType("cost", is, "an integer")
	}
	if bytes.ContainsAny(raw, ".eE") {
		return malformed("%scost has a fraction or an exponent, expected an integer written in digits", o.path)
	}
	// For an integer, out of range is the only error that Atoi can return, and it then returns the nearest bound
	// as well.
	cost, _ := strconv.Atoi(string(raw))
	if cost < 1 {
		return malformed("%scost is below 1, expected 1 or more", o.path)
	}
	if cost > 1 && d.rules.CheckCost != nil { // 1 always fits, and most events cost 1
		if err := d.rules.CheckCost(d.Category, cost); err != nil {
			return malformed("%scost %s, %v", o.path, term.Cut(string(raw), maxNameBytes), err)
		}
	}
	d.Cost = cost
	return nil
}

func (d *decoding) setThread(o *object) *Rejection {
	ts, rejection := o.string("thread_ts")
	if rejection != nil || ts == "" {
		return rejection
	}
	if !isTimestamp(ts) {
		return malformed("%sthread_ts is not a message's timestamp, expected one such as 1234567890.123456", o.path)
	}
	d.ThreadTS = ts
	return nil
}

func (d *decoding) setChannel(o *object) *Rejection {
	channel, rejection := o.string("channel")
	if rejection != nil || channel == "" {
		return rejection
	}
	if d.rules.ChannelAllowed == nil || !d.rules.ChannelAllowed(channel) {
		return &Rejection{
			outcome.Unroutable,
			fmt.Sprintf("%schannel %q is in neither SLACK_CHANNEL nor SLACK_ROUTES", o.path, term.Cut(channel, maxNameBytes)),
		}
	}
	d.Channel = channel
	return nil
}

// list returns an array of up to max objects as it was written, or nil if it is absent or empty. Slack validates
// the objects.
func (o *object) list(name string, max int) (json.RawMessage, *Rejection) {
	raw, ok := o.get(name)
	if !ok {
		return nil, nil
	}
	if is := jsonType(raw); is != jsonArray {
		return nil, o.wrongType(name, is, jsonArray)
	}
	decoder := jsontext.NewDecoder(bytes.NewReader(raw), parserOptions...)
	_, err := decoder.ReadToken() // the bracket
	n := 0
	for ; err == nil && decoder.PeekKind() != ']'; n++ {
		if decoder.PeekKind() != '{' {
			value, _ := decoder.ReadValue()
			return nil, o.wrongType(fmt.Sprintf("%s[%d]", name, n), jsonType(value), jsonObject)
		}
		for inside := true; err == nil && inside; inside = decoder.StackDepth() > 1 {
			_, err = decoder.ReadToken()
			if decoder.StackDepth() > maxDepth {
				return nil, malformed("%s%s is nested in more than %d levels", o.path, name, maxDepth)
			}
		}
	}
	switch {
	case err != nil: // the array is valid JSON, or parseObject would have failed
		return nil, malformed("%s%s is not an array", o.path, name)
	case n > max:
		return nil, malformed("%s%s has %d elements, expected at most %d", o.path, name, n, max)
	case n == 0:
		return nil, nil
	}
	return bytes.Clone(raw), nil
}

// get returns the value of a field, one of fieldNames. A null counts as absent.
func (o *object) get(name string) ([]byte, bool) {
	raw := o.values[slices.Index(fieldNames[:], name)]
	return raw, raw != nil && jsonType(raw) != jsonNull
}

// has reports whether the object has a field with this name and JSON type.
func (o *object) has(name, jsonTypeName string) bool {
	raw, ok := o.get(name)
	return ok && jsonType(raw) == jsonTypeName
}

// string returns the field's value, or "" if it is absent: publishers that send all their fields send empty
// ones.
func (o *object) string(name string) (string, *Rejection) {
	raw, ok := o.get(name)
	if !ok {
		return "", nil
	}
	if is := jsonType(raw); is != jsonString {
		return "", o.wrongType(name, is, jsonString)
	}
	s, err := unquote(raw)
	if err != nil {
		return "", malformed("%s%s is not a string", o.path, name)
	}
	return s, nil
}

func (o *object) wrongType(name, is, expected string) *Rejection {
	return malformed("%s%s is %s, expected %s", o.path, name, is, expected)
}

// unquote decodes a JSON string. Most have no escapes and are returned as they are: their bytes are known to
// be valid UTF-8 by now.
func unquote(raw []byte) (string, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), nil
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err
}

// jsonType names the type of a valid JSON value by its first byte.
func jsonType(raw []byte) string {
	switch raw[0] {
	case '{':
		return jsonObject
	case '[':
		return jsonArray
	case '"':
		return jsonString
	case 't', 'f':
		return jsonBoolean
	case 'n':
		return jsonNull
	}
	return jsonNumber
}

// isTimestamp reports whether s has the form of Slack's message timestamps: ten digits, a dot, six digits.
func isTimestamp(s string) bool {
	if len(s) != 17 || s[10] != '.' {
		return false
	}
	return strings.Trim(s[:10], "0123456789") == "" && strings.Trim(s[11:], "0123456789") == ""
}
