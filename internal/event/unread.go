package event

import (
	"encoding/json"
	"maps"
	"slices"
)

// Unread lists the fields of a JSON payload that are not read, sorted by name. Publishers may use such fields
// for themselves. Unread ignores the envelope of a CloudEvent.
func Unread(m Message) []string {
	if declaresText(m) {
		return nil
	}
	fields := objectFields(withoutMark(m.Data))
	read := []string{"id", "text", "blocks", "attachments", "channel", "thread_ts", "cost", "time"}
	_, binary := headerValue(m.Header, "ce-specversion")
	version := fields["specversion"]
	structured := len(version) > 0 && jsonType(version) == jsonString
	if structured {
		fields = objectFields(fields["data"])
	}
	if binary || structured { // id and time are the envelope's
		read = slices.DeleteFunc(read, func(name string) bool { return name == "id" || name == "time" })
	}
	unread := slices.Sorted(maps.Keys(fields))
	return slices.DeleteFunc(unread, func(name string) bool { return slices.Contains(read, name) })
}

// LooksLikeEvent reports whether the payload is a JSON object with a field that few other things than events
// have.
func LooksLikeEvent(m Message) bool {
	fields := objectFields(withoutMark(m.Data))
	for _, name := range []string{"text", "blocks", "attachments", "specversion"} {
		if fields[name] != nil {
			return true
		}
	}
	return false
}

func declaresText(m Message) bool {
	contentType, _ := headerValue(m.Header, "content-type")
	return mediaType(contentType) == "text/plain"
}

// objectFields returns the fields of a JSON object, or nil for anything else.
func objectFields(data []byte) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil
	}
	return fields
}
