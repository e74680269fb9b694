package markup

// How many characters Slack accepts in a text, by its place. With one more it rejects the whole message.
const (
	maxHeaderText   = 150
	maxFieldText    = 2_000
	maxTextObject   = 3_000
	maxMarkdownText = 12_000
	maxButtonText   = 75 // and of an option
	maxOptionValue  = 150
	maxImageText    = 2_000
	maxConfirmTitle = 100
	maxConfirmText  = 300
	maxConfirmLabel = 30
)

// The types and fields below are the list of what an event may use without AllowMarkup. docs/publishing.md
// has the same list for people, and a test compares them. A type belongs here if all of it is known to be
// harmless once it is rewritten: with what Slack adds later an event is rejected until somebody has looked.

// plainText and mrkdwn are text objects.
func plainText(limit int) object {
	return object{fields: fields{"text": words(limit), "emoji": flag, "verbatim": omitted}}
}

func mrkdwn(limit int) object {
	text := ofString(func(hosts Hosts, text string) string { return hosts.Text(text, limit) })
	return object{fields: fields{"text": text, "emoji": omitted, "verbatim": omitted}, finish: setVerbatim}
}

// setVerbatim keeps Slack from looking for names in the text: they may ping.
func setVerbatim(_ Hosts, object map[string]any) (map[string]any, error) {
	object["verbatim"] = true
	return object, nil
}

func label(limit int) rewrite { return oneOf(types{"plain_text": plainText(limit)}) }
func text(limit int) rewrite {
	return oneOf(types{"plain_text": plainText(limit), "mrkdwn": mrkdwn(limit)})
}

// imageElement is an image in a context or section block.
var imageElement = object{fields{"image_url": linkURL, "alt_text": words(maxImageText)}, showImageHost}

var (
	confirm = plain(object{fields: fields{
		"title":   label(maxConfirmTitle),
		"text":    text(maxConfirmText),
		"confirm": label(maxConfirmLabel),
		"deny":    label(maxConfirmLabel),
		"style":   name,
	}})
	// A click also reports the publisher's action_id and value to the app that owns the token. They are left
	// out, so that no event can use the app's own buttons with the rights of whoever clicks.
	button = object{
		fields{
			"text":                label(maxButtonText),
			"url":                 linkURL,
			"style":               name,
			"confirm":             confirm,
			"accessibility_label": words(maxButtonText),
			"action_id":           omitted,
			"value":               omitted,
		},
		showButtonHost,
	}
	option = object{fields{
		"text": label(maxButtonText), "description": label(maxButtonText), "url": linkURL, "value": omitted,
	}, showOptionHost}
	overflow = object{fields: fields{"options": listOf(plain(option)), "confirm": confirm, "action_id": omitted}}
)

// style is the style of a piece of rich text.
var style = plain(object{fields: fields{
	"bold":             flag,
	"italic":           flag,
	"strike":           flag,
	"code":             flag,
	"underline":        flag,
	"highlight":        flag,
	"client_highlight": flag,
	"unlink":           flag,
}})

// richPieces are what a line of rich text consists of. What can ping becomes text.
var richPieces = types{
	"text":    {fields: fields{"text": words(maxMarkdownText), "style": style}},
	"emoji":   {fields: fields{"name": name, "unicode": name, "skin_tone": number, "style": style}},
	"color":   {fields: fields{"value": name, "style": style}},
	"channel": {fields: fields{"channel_id": name, "style": style}},
	"date": {
		fields: fields{
			"timestamp": number,
			"format":    words(maxTextObject),
			"timezone":  name,
			"fallback":  words(maxTextObject),
			"url":       omitted,
			"style":     style,
		},
	},
	"link": {
		fields{"url": linkURL, "text": words(maxTextObject), "style": style, "unsafe": omitted},
		showLinkHost,
	},
	"broadcast": {fields{"range": name, "style": style}, asText("range")},
	"user":      {fields{"user_id": name, "style": style}, asText("user_id")},
	"usergroup": {fields{"usergroup_id": name, "style": style}, asText("usergroup_id")},
}

// The parts of a rich text block.
var (
	richLine  = fields{"elements": listOf(oneOf(richPieces)), "border": number}
	richParts = types{
		"rich_text_section": {fields: richLine},
		"rich_text_quote":   {fields: richLine},
		"rich_text_preformatted": {
			fields: fields{"elements": listOf(oneOf(richPieces)), "border": number, "language": name},
		},
		"rich_text_list": {fields: fields{
			"elements": listOf(oneOf(types{"rich_text_section": {fields: richLine}})),
			"style":    name,
			"indent":   number,
			"offset":   number,
			"border":   number,
		}},
	}
	richText = object{fields: fields{"elements": listOf(oneOf(richParts)), "block_id": omitted}}
)

// cells are what a table consists of.
var cells = types{
	"raw_text":   {fields: fields{"text": words(maxMarkdownText)}},
	"raw_number": {fields: fields{"value": number, "text": words(maxMarkdownText)}},
	"rich_text":  richText,
}

var blockTypes = types{
	"actions": {
		fields: fields{
			"elements": listOf(oneOf(types{"button": button, "overflow": overflow})),
			"block_id": omitted,
		},
	},
	"alert": {fields: fields{"text": text(maxTextObject), "level": name, "block_id": omitted}},
	"context": {fields: fields{
		"elements": listOf(
			oneOf(
				types{"plain_text": plainText(maxTextObject), "mrkdwn": mrkdwn(maxTextObject), "image": imageElement},
			),
		),
		"block_id": omitted,
	}},
	"divider": {fields: fields{"block_id": omitted}},
	"header":  {fields: fields{"text": label(maxHeaderText), "level": number, "block_id": omitted}},
	"image": {fields{
		"image_url": linkURL, "alt_text": words(maxImageText), "title": label(maxImageText), "block_id": omitted,
	}, showImageHost},
	"markdown":  {fields: fields{"text": markdown(maxMarkdownText), "block_id": omitted}},
	"rich_text": richText,
	"section": {fields: fields{
		"text": text(maxTextObject), "fields": listOf(text(maxFieldText)), "expand": flag, "block_id": omitted,
		"accessory": oneOf(types{"button": button, "overflow": overflow, "image": imageElement}),
	}},
	"table": {fields: fields{
		"rows": listOf(listOf(oneOf(cells))), "block_id": omitted,
		"column_settings": listOf(orNull(plain(object{fields: fields{"align": name, "is_wrapped": flag}}))),
	}},
}
