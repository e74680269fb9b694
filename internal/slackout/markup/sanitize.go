package markup

import (
	"bytes"
	"encoding/json"
	"strings"

	"notifier/internal/term"
)

// Blocks sanitizes a JSON array of Block Kit blocks. Mentions become text and mrkdwn becomes verbatim; the
// rest keeps its structure. The error, for input that is not valid JSON, quotes at most one
// character of it.
func Blocks(blocks json.RawMessage) (json.RawMessage, error) { return sanitize(blocks, inBlocks) }

// Attachments sanitizes a JSON array of attachments, including the blocks in them.
func Attachments(attachments json.RawMessage) (json.RawMessage, error) {
	return sanitize(attachments, inAttachments)
}

// place is the part of a message that a value belongs to. It decides which strings are mrkdwn.
type place int

const (
	inBlocks      place = iota // a string is mrkdwn if the type of its object says so
	inAttachments              // a string is mrkdwn if its field is in attachmentTexts
	inActions                  // of an attachment: strings keep their "&", because values go to an app
)

// attachmentTexts are the fields of an attachment that Slack reads as mrkdwn or decodes like it.
var attachmentTexts = map[string]bool{
	"text": true, "pretext": true, "fallback": true, "title": true, "value": true, "footer": true,
	"author_name": true, "author_subname": true, "service_name": true,
}

func sanitize(list json.RawMessage, at place) (json.RawMessage, error) {
	decoder := json.NewDecoder(bytes.NewReader(list))
	decoder.UseNumber() // keeps every digit
	// Decoding keeps the last of duplicate names, so Slack cannot read a value that was not sanitized.
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(at.value("", tree)); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// value sanitizes the value of a field, or one of the values in its array.
func (at place) value(field string, value any) any {
	switch value := value.(type) {
	case string:
		return at.text(field, term.Message(value))
	case []any:
		for i := range value {
			value[i] = at.value(field, value[i])
		}
	case map[string]any:
		for name := range value {
			value[name] = at.inside(name).value(name, value[name])
		}
		return at.object(value)
	}
	return value
}

// inside returns the place of a field's value.
func (at place) inside(name string) place {
	switch {
	case name == "attachments":
		return inAttachments
	case at == inAttachments && name == "blocks":
		return inBlocks
	case at == inAttachments && name == "actions":
		return inActions
	}
	return at
}

// text sanitizes a string. Outside of blocks no string keeps a "<": neither URLs nor values need one, and a
// field that is missing in attachmentTexts cannot start a mention either.
func (at place) text(field, text string) string {
	switch {
	case field == "blocks" || field == "attachments": // JSON in a string: Slack may decode it
		return ""
	case at == inBlocks:
		return text
	case at == inAttachments && attachmentTexts[field]:
		return Escape(text)
	}
	return withoutTags.Replace(text)
}

var withoutTags = strings.NewReplacer("<", "&lt;", ">", "&gt;")

// object sanitizes an object whose values are sanitized already: "mr\u0000kdwn" has become "mrkdwn".
func (at place) object(object map[string]any) map[string]any {
	text, isText := object["text"].(string)
	switch object["type"] {
	case "mrkdwn":
		if at == inBlocks && isText {
			object["text"] = Escape(text)
		}
		object["verbatim"] = true // keeps Slack from turning @names into mentions
	case "markdown":
		if at == inBlocks && isText {
			object["text"] = markdown(text)
		}
	case "broadcast":
		return mention(object, "range")
	case "user":
		return mention(object, "user_id")
	case "usergroup":
		return mention(object, "usergroup_id")
	case "team":
		return mention(object, "team_id")
	}
	return object
}

// mention returns the text that takes the place of a mention in rich text.
func mention(object map[string]any, field string) map[string]any {
	name, _ := object[field].(string)
	text := map[string]any{"type": "text", "text": "@" + name}
	if style, ok := object["style"]; ok {
		text["style"] = style
	}
	return text
}
