package markup

import (
	"encoding/json"

	"notifier/internal/term"
)

// number and flag rewrite values without a text.
func number(_ Hosts, value any) (any, error) {
	if _, ok := value.(json.Number); !ok {
		return nil, wrong("is %s, expected a number", kindOf(value))
	}
	return value, nil
}

func flag(_ Hosts, value any) (any, error) {
	if _, ok := value.(bool); !ok {
		return nil, wrong("is %s, expected a boolean", kindOf(value))
	}
	return value, nil
}

// omitted leaves a field out that has no use here, whatever it has.
func omitted(Hosts, any) (any, error) { return nil, nil }

// ofString rewrites a string.
func ofString(change func(hosts Hosts, text string) string) rewrite {
	return func(hosts Hosts, value any) (any, error) {
		text, ok := value.(string)
		if !ok {
			return nil, wrong("is %s, expected a string", kindOf(value))
		}
		return change(hosts, text), nil
	}
}

// name rewrites an id, or a word of Slack's such as a style.
var name = ofString(func(_ Hosts, text string) string { return cutLabel(term.Message(text), 255) })

// words rewrites a string in which Slack interprets nothing.
func words(limit int) rewrite {
	return ofString(func(_ Hosts, text string) string { return cutWords(text, limit) })
}

// cutWords cuts a text without markup: a short one like a label, a long one with a notice.
func cutWords(text string, limit int) string {
	if text = term.Message(text); limit < maxHeaderText {
		return cutLabel(text, limit)
	}
	return cutPlain(text, limit)
}

// markdown rewrites a string in Markdown.
func markdown(limit int) rewrite {
	return ofString(func(hosts Hosts, text string) string { return hosts.markdown(text, limit) })
}

// linkURL rewrites the URL of a link.
func linkURL(_ Hosts, value any) (any, error) {
	raw, ok := value.(string)
	if !ok {
		return nil, wrong("is %s, expected a string", kindOf(value))
	}
	l, err := parseLink(raw)
	if err != nil {
		return nil, err
	}
	return l.url, nil
}
