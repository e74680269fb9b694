package slackout

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"
)

// How many characters Slack accepts in a text, by its place. With one more it rejects the whole message.
const (
	maxHeaderText   = 150
	maxFieldText    = 2_000
	maxTextObject   = 3_000
	maxMarkdownText = 12_000
)

// neutraliseBlocks rewrites Block Kit JSON so that nothing in it can ping, or link to a place other than the one it shows,
// and cuts the texts that would be too long. Everything else is kept: unknown blocks, unknown fields, every digit of a
// number.
func neutraliseBlocks(blocks json.RawMessage) (json.RawMessage, error) {
	decoder := json.NewDecoder(bytes.NewReader(blocks))
	decoder.UseNumber()
	var tree []any
	if err := decoder.Decode(&tree); err != nil {
		return nil, err
	}
	if tree == nil {
		return nil, errors.New("blocks are null, expected an array")
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

// neutralise rewrites a value and everything in it. limit applies to the text objects directly inside it.
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
		object["verbatim"] = true // otherwise Slack looks for names in the text, and they may ping
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

// neutraliseRich rewrites an element of rich text: a container of further elements, or an inline element.
func neutraliseRich(element any) any {
	if object, ok := element.(map[string]any); ok {
		if kind, _ := object["type"].(string); strings.HasPrefix(kind, "rich_text") {
			return neutraliseObject(object, maxTextObject)
		}
		return plainElement(object)
	}
	return element
}

// limitOf returns the limit in characters for the text objects in a field of a block or element.
func limitOf(kind, field string) int {
	switch {
	case kind == "header" && field == "text":
		return maxHeaderText
	case kind == "section" && field == "fields":
		return maxFieldText
	}
	return maxTextObject
}

// plainElement replaces an inline element of rich text with a plain text that shows the same, unless it is one of the few
// that can neither ping nor link. The list is of the harmless ones, so that elements that Slack adds later are replaced
// too.
func plainElement(element map[string]any) map[string]any {
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
	plain := map[string]any{"type": "text", "text": words}
	if style, ok := element["style"].(map[string]any); ok {
		plain["style"] = style
	}
	return plain
}

// escapeMarkdown escapes Markdown: &, < and > as everywhere, and each [ that is not escaped by a backslash already, so
// that no label can hide another URL.
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
