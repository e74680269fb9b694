package event

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// structuredCloudEvent reports whether a Content-Type declares a structured CloudEvent. A batch is rejected
// because one message is one event here, and so is every format other than JSON.
func structuredCloudEvent(contentType string) (bool, *Rejection) {
	format, ok := strings.CutPrefix(contentType, "application/cloudevents")
	switch {
	case !ok:
		return false, nil
	case format == "" || format == "+json":
		return true, nil
	case strings.HasPrefix(format, "-batch"):
		return false, malformed("payload is a batch of CloudEvents, expected one CloudEvent in each message")
	}
	return false, malformed(
		"payload is a CloudEvent in a format other than JSON, expected application/cloudevents+json",
	)
}

// readStructured reads a payload that the Content-Type declares to be a CloudEvent in the JSON format.
func (d *decoding) readStructured(data []byte) *Rejection {
	if !beginsObject(data) {
		return malformed("payload is not an object, expected a CloudEvent as a JSON object")
	}
	o, rejection := parseObject("", data)
	if rejection != nil {
		return rejection
	}
	return d.readCloudEvent(&o)
}

// readCloudEvent reads a CloudEvent in the JSON format.
func (d *decoding) readCloudEvent(o *object) *Rejection {
	rejection := d.setAttributes(o.string)
	if rejection != nil {
		return rejection
	}
	encoded, rejection := o.string("data_base64")
	if rejection != nil {
		return rejection
	}
	data, hasData := o.get("data")
	switch {
	case hasData && encoded != "":
		return malformed("CloudEvent has both data and data_base64, expected one of them")
	case encoded != "":
		contentType, rejection := o.string("datacontenttype")
		if rejection != nil {
			return rejection
		}
		decoded, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return malformed("data_base64 is not valid base64")
		}
		if !utf8.Valid(decoded) {
			return malformed("data_base64 is not valid UTF-8 once decoded")
		}
		return d.readTyped("data_base64.", decoded, parseMediaType(contentType))
	case !hasData:
		return nothingToShow()
	}
	return d.readData("data.", data)
}

// readData reads the data of a CloudEvent that is a valid JSON value. Both modes read it alike.
func (d *decoding) readData(path string, data []byte) *Rejection {
	name := cmp.Or(strings.TrimSuffix(path, "."), "payload")
	switch is := jsonType(data); is {
	case jsonNull:
		return nothingToShow()
	case jsonString:
		text, err := unquote(data)
		if err != nil {
			return malformed("%s is not a string", name)
		}
		return d.readText(text)
	case jsonObject:
		inner, rejection := parseObject(path, data)
		if rejection != nil {
			return rejection
		}
		return d.readObject(&inner)
	default:
		return malformed("%s is %s, expected an object or a string", name, is)
	}
}

// readTyped reads the data of a CloudEvent as its declared media type says: JSON as JSON, anything else as a
// payload that is no CloudEvent.
func (d *decoding) readTyped(path string, data []byte, mediaType string) *Rejection {
	if mediaType != "application/json" && mediaType != "text/json" && !strings.HasSuffix(mediaType, "+json") {
		return d.readBody(path, data, mediaType)
	}
	data = bytes.TrimSpace(data)
	switch {
	case len(data) == 0:
		return nothingToShow()
	case !json.Valid(data):
		return broken(path, data)
	}
	return d.readData(path, data)
}

// readBinary reads a CloudEvent with its attributes in headers and its data in the payload.
func (d *decoding) readBinary(header map[string][]string, data []byte, contentType string) *Rejection {
	attribute := func(name string) (string, *Rejection) {
		value, _ := HeaderValue(header, "ce-"+name)
		decoded := decodeHeaderValue(value)
		if !utf8.ValidString(decoded) {
			return "", malformed("ce-%s is not valid UTF-8 once decoded", name)
		}
		return decoded, nil
	}
	if rejection := d.setAttributes(attribute); rejection != nil {
		return rejection
	}
	// The NATS binding puts the data's type in ce-datacontenttype; publishers used to HTTP put it in
	// Content-Type.
	declared, rejection := attribute("datacontenttype")
	if rejection != nil {
		return rejection
	}
	if declared != "" {
		contentType = parseMediaType(declared)
	}
	return d.readTyped("", data, contentType)
}

// setAttributes sets id and time from a CloudEvent's attributes, and checks that it has every attribute that
// the specification requires. The id comes first, so that a Rejection for any of the others is logged with
// it.
//
// Source and id together identify a CloudEvent, even if a header repeats the id, as in a replayed dead
// letter. If a header has another id, that id alone identifies the event.
func (d *decoding) setAttributes(attribute func(name string) (string, *Rejection)) *Rejection {
	d.inCloudEvent = true
	var id string
	for _, name := range [...]string{"id", "specversion", "source", "type", "time"} {
		value, rejection := attribute(name)
		if rejection != nil {
			return rejection
		}
		switch {
		case name == "time":
			rejection = d.setTime(name, value)
		case value == "":
			rejection = malformed("CloudEvent has no %s, expected a string that is not empty", name)
		case name == "id":
			id, rejection = value, d.setPayloadID(name, value)
		case name == "source":
			d.Source = ShownSource(value)
			if d.ID == id {
				d.IDSource = value
			}
		case name == "specversion" && !supportedVersion(value):
			rejection = malformed("CloudEvent has an unsupported specversion, expected 1.0 or a later 1.x")
		}
		if rejection != nil {
			return rejection
		}
	}
	return nil
}

// supportedVersion reports whether v is 1.x: by the specification's rules a minor version only adds to 1.0.
func supportedVersion(v string) bool {
	minor, ok := strings.CutPrefix(v, "1.")
	return ok && minor != "" && strings.Trim(minor, "0123456789") == ""
}

// HeaderValue returns the first value of the header with this name, ignoring case, because NATS keeps the
// publisher's spelling. Of several spellings the first in byte order counts, so that every delivery gives the
// same value.
func HeaderValue(header map[string][]string, name string) (string, bool) {
	found, spelling := "", ""
	for key, values := range header {
		if len(key) == len(name) && strings.EqualFold(key, name) && len(values) > 0 &&
			(spelling == "" || key < spelling) {
			found, spelling = values[0], key
		}
	}
	return found, spelling != ""
}

// parseMediaType returns a Content-Type without its parameters, in lower case.
func parseMediaType(contentType string) string {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(mediaType))
}

// decodeHeaderValue decodes an attribute as the CloudEvents binding for NATS encodes it (1.0.3, "NATS Header
// Values"): it removes double quotes and their backslash escapes, which only older publishers send, and then
// decodes the percent-encoding, once. A "%" without two hexadecimal digits is kept, because some publishers
// do not encode at all.
func decodeHeaderValue(value string) string {
	value = strings.Trim(value, " \t")
	quoted := len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"'
	if !quoted && strings.IndexByte(value, '%') < 0 {
		return value
	}
	if quoted {
		value = unescape(value[1 : len(value)-1])
	}
	decoded := make([]byte, 0, len(value))
	for i := 0; i < len(value); i++ {
		if value[i] == '%' && i+2 < len(value) {
			if hi, lo := hexDigit(value[i+1]), hexDigit(value[i+2]); hi >= 0 && lo >= 0 {
				decoded = append(decoded, byte(hi<<4|lo))
				i += 2
				continue
			}
		}
		decoded = append(decoded, value[i])
	}
	return string(decoded)
}

// unescape replaces each backslash and the byte after it with that byte.
func unescape(s string) string {
	unescaped := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		unescaped = append(unescaped, s[i])
	}
	return string(unescaped)
}

// hexDigit returns the value of a hexadecimal digit in either case, or -1.
func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
