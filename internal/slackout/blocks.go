package slackout

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"
)

// How many characters Slack takes in a text, by where it stands. One more, and it refuses the whole message.
const (
	maxHeaderText   = 150
	maxFieldText    = 2_000
	maxTextObject   = 3_000
	maxMarkdownText = 12_000
)

// neutraliseBlocks rewrites Block Kit JSON so that nothing in it can ping, or link to another place than it shows,
// and cuts the texts that would be too long. All else stays: unknown blocks, unknown fields, numbers to the digit.
func neutraliseBlocks(blocks json.RawMessage) (json.RawMessage, error) {
	decoder := json.NewDecoder(bytes.NewReader(blocks))
	decoder.UseNumber()
	var tree []any
	if err := decoder.Decode(&tree); err != nil {
		return nil, err
	}
	if tree == nil {
		return nil, errors.New("null is no list of blocks")
	}
	for i := range tree {
		tree[i] = neutralise(tree[i], maxTextObject)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(tree); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// neutralise rewrites one value and all that is in it. limit is for the text objects right inside it.
func neutralise(value any, limit int) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = neutralise(v[i], limit)
		}
	case map[string]any:
		return neutraliseObject(v, limit)
	}
	return value
}

func neutraliseObject(object map[string]any, limit int) any {
	kind, _ := object["type"].(string)
	text, hasText := object["text"].(string)
	switch kind {
	case "mrkdwn":
		if hasText {
			object["text"] = escapeAndCut(text, limit)
		}
		object["verbatim"] = true // else Slack looks for names by itself, and they may ping
		return object
	case "plain_text":
		if hasText {
			object["text"] = cutPlain(text, limit)
		}
		return object
	case "markdown":
		if hasText {
			object["text"] = escapeMarkdown(text, maxMarkdownText)
		}
	}
	rich := strings.HasPrefix(kind, "rich_text")
	for name, inner := range object {
		elements, ok := inner.([]any)
		if rich && ok && name == "elements" {
			for i := range elements {
				elements[i] = neutraliseRich(elements[i])
			}
			continue
		}
		object[name] = neutralise(inner, limitOf(kind, name))
	}
	return object
}

// neutraliseRich rewrites an element of rich text: a container of further elements, or one of its words.
func neutraliseRich(element any) any {
	if object, ok := element.(map[string]any); ok {
		if kind, _ := object["type"].(string); strings.HasPrefix(kind, "rich_text") {
			return neutraliseObject(object, maxTextObject)
		}
		return spokenElement(object)
	}
	return element
}

// limitOf is the limit for the text objects in a field of a block or element.
func limitOf(kind, field string) int {
	switch {
	case kind == "header" && field == "text":
		return maxHeaderText
	case kind == "section" && field == "fields":
		return maxFieldText
	}
	return maxTextObject
}

// spokenElement makes an inline element of rich text into the words it stands for, unless it is one of the few
// that can neither ping nor link. The list is of the harmless ones, so that what Slack adds later is caught too.
func spokenElement(element map[string]any) map[string]any {
	str := func(name string) string { s, _ := element[name].(string); return s }
	words := ""
	switch kind := str("type"); kind {
	case "text", "emoji", "color", "channel", "tag":
		return element
	case "date":
		delete(element, "url")
		return element
	case "broadcast":
		words = "@" + str("range")
	case "user":
		words = "@" + str("user_id")
	case "usergroup":
		words = "@" + str("usergroup_id")
	default:
		label, url := str("text"), str("url")
		switch {
		case label != "" && url != "" && label != url:
			words = label + " (" + url + ")"
		case url != "":
			words = url
		case label != "":
			words = label
		default:
			words = "[" + kind + "]"
		}
	}
	spoken := map[string]any{"type": "text", "text": words}
	if style, ok := element["style"].(map[string]any); ok {
		spoken["style"] = style
	}
	return spoken
}

// escapeMarkdown escapes Markdown: &, < and > as everywhere, and each [ that a backslash does not take care of
// already, so that no label can stand for another URL.
func escapeMarkdown(text string, limit int) string {
	escaped := false // whether the next character follows an effective backslash
	return cutUnits(text, limit, func(rest string) (string, int) {
		r, size := utf8.DecodeRuneInString(rest)
		was := escaped
		escaped = r == '\\' && !was
		if r == '[' && !was {
			return `\[`, size
		}
		if e := entity(r); e != "" {
			return e, size
		}
		return string(r), size
	})
}
