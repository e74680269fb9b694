package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// fieldNames lists the fields to read from an object: a CloudEvent's and an event's.
var fieldNames = [...]string{
	"id", "text", "cost", "time", "channel", "thread_ts", "blocks", "attachments",
	"specversion", "source", "type", "data", "data_base64", "datacontenttype",
}

// object is one JSON object of a payload. Names are case-sensitive, which they would not be when decoding
// into a struct; of duplicate names the last value counts, as in most JSON parsers.
type object struct {
	path   string                  // the prefix of a field's name in a Rejection: "", "data." or "data_base64."
	values [len(fieldNames)][]byte // by the index of the name, valid JSON, a part of the payload; nil: absent
}

// beginsObject reports whether the first byte of data that is not JSON whitespace opens an object.
func beginsObject(data []byte) bool {
	data = bytes.TrimLeft(data, " \t\r\n")
	return len(data) > 0 && data[0] == '{'
}

// parseObject parses data, which is valid UTF-8 and begins an object. In a Rejection the first byte of data
// is byte 1. Objects and arrays may be nested in 10,000 levels.
func parseObject(path string, data []byte) (object, *Rejection) {
	o := object{path: path}
	if err := o.read(data); err != nil {
		return object{}, broken(path, data)
	}
	return o, nil
}

// parser reads JSON from a buffer; both are used again.
type parser struct {
	buffer  bytes.Buffer
	decoder jsontext.Decoder
}

var parsers = sync.Pool{New: func() any { return &parser{} }}

// parserOptions match encoding/json, which accepts duplicate names and reads half a surrogate pair as U+FFFD.
var parserOptions = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// read notes where the fields are that have one of the names, and reads over all others.
func (o *object) read(data []byte) error {
	p := parsers.Get().(*parser)
	defer parsers.Put(p)
	p.buffer = *bytes.NewBuffer(data)
	p.decoder.Reset(&p.buffer, parserOptions...)
	if _, err := p.decoder.ReadToken(); err != nil { // the brace
		return err
	}
	for p.decoder.PeekKind() != '}' {
		name, err := p.decoder.ReadValue()
		if err != nil {
			return err
		}
		field := fieldNamed(name)
		value, err := p.decoder.ReadValue()
		if err != nil {
			return err
		}
		if field >= 0 { // value is the decoder's, and lasts until the next call
			end := int(p.decoder.InputOffset())
			o.values[field] = data[end-len(value) : end]
		}
	}
	if _, err := p.decoder.ReadToken(); err != nil {
		return err
	}
	if _, err := p.decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return errContinues
	}
	return nil
}

// errContinues means that something follows the object.
var errContinues = errors.New("the payload continues")

// fieldNamed is the index in fieldNames of a name as JSON has it, or -1.
func fieldNamed(name []byte) int {
	if bytes.IndexByte(name, '\\') >= 0 {
		unquoted, err := jsontext.AppendUnquote(nil, name)
		if err != nil {
			return -1 // it has half a surrogate pair, which none of the names has
		}
		return slices.Index(fieldNames[:], string(unquoted))
	}
	inner := name[1 : len(name)-1]
	for i := range fieldNames {
		if string(inner) == fieldNames[i] {
			return i
		}
	}
	return -1
}

// broken returns why data is not one JSON value. encoding/json gives the position of a fault.
func broken(path string, data []byte) *Rejection {
	where := "payload"
	if path != "" {
		where = strings.TrimSuffix(path, ".")
	}
	// Its error for all of data does not distinguish an object that is cut off from one that is followed by
	// something else. A Decoder does, as it stops after the first value.
	err := json.Unmarshal(data, new(json.RawMessage))
	first := json.NewDecoder(bytes.NewReader(data))
	switch err := first.Decode(new(json.RawMessage)); {
	case err == nil:
		return malformed("%s continues after its JSON value, which ends at byte %d", where, first.InputOffset())
	case errors.Is(err, io.ErrUnexpectedEOF):
		return malformed("%s is broken JSON: it ends at byte %d before its value does", where, len(data))
	}
	at := int64(0)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = syntax.Offset
	}
	return malformed("%s is broken JSON, or nested too deeply, at byte %d", where, at)
}
