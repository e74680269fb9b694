package event

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"notifier/internal/term/suggest"
)

// UnreadField is a field of a payload that is not read, and the one that its publisher most likely meant.
type UnreadField struct{ Name, Meant string }

// meantBy are names, in lower case, under which other programs know what a field is.
var meantBy = map[string]string{
	"message": "text", "msg": "text", "txt": "text", "body": "text", "content": "text",
	"attachments": "blocks", "timestamp": "time", "thread": "thread_ts", "event_id": "id",
}

// Unread lists the fields of a JSON payload that look like one that is read and is absent, sorted by name.
// Other fields, which publishers have for themselves, are not listed.
func Unread(m Message) []UnreadField {
	if declaresText(m) {
		return nil
	}
	fields := objectFields(withoutMark(m.Data))
	_, cloudEvent := headerValue(m.Header, "ce-specversion")
	if version := fields["specversion"]; len(version) > 0 && jsonType(version) == jsonString {
		cloudEvent = true
		fields = objectFields(fields["data"])
	}
	read := []string{"text", "cost", "channel", "thread_ts", "blocks"}
	if !cloudEvent { // else these are attributes
		read = append(read, "id", "time")
	}
	absent := slices.DeleteFunc(read, func(name string) bool { return fields[name] != nil })
	var unread []UnreadField
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if slices.Contains(fieldNames[:], name) {
			continue
		}
		distance := 1
		if len(name) < 5 { // host and code are near cost, and mean themselves
			distance = 0
		}
		if meant := meantBy[strings.ToLower(name)]; slices.Contains(absent, meant) {
			unread = append(unread, UnreadField{name, meant})
		} else if near, found := suggest.Within(name, absent, distance); found {
			unread = append(unread, UnreadField{name, near})
		}
	}
	return unread
}

// PostedAsText is what kind of JSON, array or string, a payload is that is posted as text although no header
// declares it to be that; empty: neither.
func PostedAsText(m Message) string {
	data := bytes.TrimSpace(withoutMark(m.Data))
	switch {
	case declaresText(m) || !json.Valid(data):
		return ""
	case data[0] == '[':
		return "array"
	case data[0] == '"':
		return "string"
	}
	return ""
}

// LooksLikeEvent reports whether the payload is a JSON object with a field that hardly anything but an event
// has.
func LooksLikeEvent(m Message) bool {
	fields := objectFields(withoutMark(m.Data))
	return fields["text"] != nil || fields["blocks"] != nil || fields["specversion"] != nil
}

func declaresText(m Message) bool {
	contentType, _ := headerValue(m.Header, "content-type")
	return mediaType(contentType) == "text/plain"
}

// objectFields are the fields of a JSON object; none of anything else.
func objectFields(data []byte) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil
	}
	return fields
}
