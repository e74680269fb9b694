package markup

import "strings"

// showButtonHost puts the host in front of the words of a button. One without a URL is for an app that
// answers clicks, which notifier does not.
func showButtonHost(hosts Hosts, button map[string]any) (map[string]any, error) {
	l, err := linkIn(button, "url")
	if err == nil && !hosts.match(l.host) {
		showInText(button, "text", l, maxButtonText)
		showIn(button, "accessibility_label", l, maxButtonText)
	}
	return button, err
}

// showOptionHost does it for an option of an overflow menu. Slack wants a value in it: it is where the option
// goes.
func showOptionHost(hosts Hosts, option map[string]any) (map[string]any, error) {
	l, err := linkIn(option, "url")
	if err == nil && !hosts.match(l.host) {
		showInText(option, "text", l, maxButtonText)
		showInText(option, "description", l, maxButtonText)
	}
	option["value"] = cutLabel(l.url, maxOptionValue)
	return option, err
}

// showImageHost does it for the title and the description of an image: a click opens its URL too.
func showImageHost(hosts Hosts, image map[string]any) (map[string]any, error) {
	l, err := linkIn(image, "image_url")
	switch {
	case err != nil:
		return nil, err
	case l.host == "":
		return nil, within("image_url", wrong("is a mail link, expected http or https"))
	case !hosts.match(l.host):
		showInText(image, "title", l, maxImageText)
		showIn(image, "alt_text", l, maxImageText)
	}
	return image, nil
}

// linkIn returns the link in a field.
func linkIn(object map[string]any, field string) (link, error) {
	raw, ok := object[field].(string)
	if !ok {
		return link{}, within(field, wrong("is absent, expected the URL that it opens"))
	}
	l, err := parseLink(raw)
	if err != nil {
		return link{}, within(field, err)
	}
	return l, nil
}

// showInText puts the link's target in front of what a text object has, where there is one.
func showInText(object map[string]any, field string, l link, limit int) {
	if text, ok := object[field].(map[string]any); ok {
		showIn(text, "text", l, limit)
	}
}

// showIn puts it in front of a string.
func showIn(object map[string]any, field string, l link, limit int) {
	if text, ok := object[field].(string); ok {
		object[field] = l.label(text, limit)
	}
}

// showLinkHost does it for a link in rich text.
func showLinkHost(hosts Hosts, piece map[string]any) (map[string]any, error) {
	l, err := linkIn(piece, "url")
	if err != nil {
		return nil, err
	}
	text, _ := piece["text"].(string)
	switch {
	case strings.TrimSpace(text) == "" || text == l.url:
		delete(piece, "text") // Slack shows the URL
	case !hosts.match(l.host):
		piece["text"] = l.inline(text, maxLinkWords)
	}
	return piece, nil
}

// asText replaces a mention by the text that Slack would show if it did not know who is meant.
func asText(field string) func(Hosts, map[string]any) (map[string]any, error) {
	return func(_ Hosts, object map[string]any) (map[string]any, error) {
		who, _ := object[field].(string)
		plain := map[string]any{"type": "text", "text": "@" + who}
		if style, ok := object["style"]; ok {
			plain["style"] = style
		}
		return plain, nil
	}
}
