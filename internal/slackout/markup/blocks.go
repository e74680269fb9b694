package markup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// CheckBlocks returns nil if Block Kit JSON, an array of blocks, can be neutralised: it has no types and
// fields but those that this package knows, and each link in it can be shown. The error names the place, what
// is there and what was expected, in at most 400 bytes. Of the content it quotes names alone, in a form that
// is safe to print.
func CheckBlocks(blocks json.RawMessage) error {
	_, err := Hosts(nil).Blocks(blocks)
	return err
}

// Blocks rewrites Block Kit JSON so that nothing in it can ping, that each link shows where it goes unless it
// goes to one of these hosts, and that no text is too long for its place. Errors are as for CheckBlocks.
func (h Hosts) Blocks(blocks json.RawMessage) (json.RawMessage, error) {
	decoder := json.NewDecoder(bytes.NewReader(blocks))
	decoder.UseNumber() // keeps every digit
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, errors.New("blocks is not valid JSON, expected an array of blocks")
	}
	tree, err := listOf(oneOf(blockTypes))(h, tree)
	if err != nil {
		return nil, within("blocks", err)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(tree); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// rewrite checks a value of decoded JSON that is not null, and returns what is posted in its place. With nil
// the field that has it is left out.
type rewrite func(hosts Hosts, value any) (any, error)

// fields are what an object may have.
type fields map[string]rewrite

// object is a kind of JSON object.
type object struct {
	fields fields
	// finish completes an object whose fields have been rewritten, or replaces it; nil: nothing is left to do.
	finish func(hosts Hosts, object map[string]any) (map[string]any, error)
}

// types are kinds of objects by their field "type".
type types map[string]object

// fault is what is wrong with a value, and where it is.
type fault struct{ at, what string }

func (f *fault) Error() string { return f.at + " " + f.what }

func wrong(format string, args ...any) error { return &fault{what: fmt.Sprintf(format, args...)} }

// within prefixes the place of a fault with the field or the index that leads there.
func within(step string, err error) error {
	var f *fault
	if !errors.As(err, &f) {
		return &fault{step, err.Error()}
	}
	if f.at != "" && f.at[0] != '[' {
		step += "."
	}
	return &fault{step + f.at, f.what}
}

// oneOf rewrites an object of one of these types.
func oneOf(known types) rewrite {
	names := strings.Join(slices.Sorted(maps.Keys(known)), ", ")
	return func(hosts Hosts, value any) (any, error) {
		values, ok := value.(map[string]any)
		if !ok {
			return nil, wrong("is %s, expected an object", kindOf(value))
		}
		kind, ok := values["type"].(string)
		if !ok {
			return nil, within("type", wrong("is %s, expected one of %s", kindOf(values["type"]), names))
		}
		o, ok := known[kind]
		if !ok {
			return nil, within("type", wrong("is %s, expected one of %s", quoted(kind), names))
		}
		return o.fill(hosts, values, kind)
	}
}

// plain rewrites an object without a type.
func plain(o object) rewrite {
	return func(hosts Hosts, value any) (any, error) {
		values, ok := value.(map[string]any)
		if !ok {
			return nil, wrong("is %s, expected an object", kindOf(value))
		}
		return o.fill(hosts, values, "")
	}
}

// quoted is a name that a publisher chose, as an error quotes it: printable, at most 62 bytes.
func quoted(name string) string { return cutLabel(strconv.QuoteToASCII(name), 60) }

// fill rewrites the fields of an object of this type, which is empty where objects have none.
func (o object) fill(hosts Hosts, values map[string]any, kind string) (any, error) {
	rewritten := make(map[string]any, len(values))
	// in order, so that the same fault is found each time
	for _, name := range slices.Sorted(maps.Keys(values)) {
		inner := values[name]
		change, known := o.fields[name]
		switch {
		case name == "type" && kind != "":
			rewritten[name] = kind
			continue
		case !known:
			return nil, wrong(
				"has the field %s, expected none but %s",
				quoted(name),
				strings.Join(slices.Sorted(maps.Keys(o.fields)), ", "),
			)
		case inner == nil:
			continue
		}
		to, err := change(hosts, inner)
		if err != nil {
			return nil, within(name, err)
		}
		if to != nil {
			rewritten[name] = to
		}
	}
	if o.finish == nil {
		return rewritten, nil
	}
	return o.finish(hosts, rewritten)
}

// listOf rewrites an array.
func listOf(each rewrite) rewrite {
	return func(hosts Hosts, value any) (any, error) {
		values, ok := value.([]any)
		if !ok {
			return nil, wrong("is %s, expected an array", kindOf(value))
		}
		for i, inner := range values {
			to, err := each(hosts, inner)
			if err != nil {
				return nil, within("["+strconv.Itoa(i)+"]", err)
			}
			values[i] = to
		}
		return values, nil
	}
}

// orNull also takes null, where Slack does in an array.
func orNull(each rewrite) rewrite {
	return func(hosts Hosts, value any) (any, error) {
		if value == nil {
			return nil, nil
		}
		return each(hosts, value)
	}
}

// kindOf names the JSON type of a value.
func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "absent or null"
	case bool:
		return "a boolean"
	case json.Number:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "an array"
	}
	return "an object"
}
