package markup

import (
	"bytes"
	"encoding/json"
	neturl "net/url"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"notifier/test/kit"
)

// FuzzBlocks holds what is posted to what the package promises, with a checker that shares nothing with the
// rewriting.
func FuzzBlocks(f *testing.F) {
	for _, test := range neutralised {
		f.Add(test.in)
	}
	for _, test := range rejected {
		f.Add(test.in)
	}
	for _, name := range []string{strings.Repeat("x", 1000), strings.Repeat("\U0001F600", 1000), strings.Repeat("\u202e", 1000)} {
		f.Add(`[{"type":"table","rows":[[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"text","style":{"` + name + `":1}}]}]}]]}]`)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if err := CheckBlocks(json.RawMessage(in)); err != nil {
			checkFault(t, err)
			if out, err := listed.Blocks(json.RawMessage(in)); err == nil {
				t.Errorf("%s was rejected, and posted as %s", in, out)
			}
			return
		}
		for _, hosts := range []Hosts{nil, listed} {
			out, err := hosts.Blocks(json.RawMessage(in))
			if err != nil {
				t.Fatalf("%s was taken, and not posted: %v", in, err)
			}
			if len(out) > 6*len(in)+100 {
				t.Errorf("%d bytes became %d", len(in), len(out))
			}
			checkHarmless(t, kit.DecodeJSON(t, string(out)), hosts)
			again, err := hosts.Blocks(out)
			if err != nil {
				t.Errorf("%s made of %s is rejected: %v", out, in, err)
			}
			if !strings.ContainsAny(string(out), "&<>[…") && !bytes.Equal(again, out) {
				t.Errorf("%s becomes %s the second time", out, again)
			}
		}
	})
}

// checkFault wants an error that can be logged and kept in a header.
func checkFault(t *testing.T, err error) {
	t.Helper()
	text := err.Error()
	if len(text) > 400 || !strings.HasPrefix(text, "blocks") || !strings.Contains(text, "expected") || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("%d bytes: %q", len(text), text)
	}
}

// checkHarmless looks for anything that could ping or lie.
func checkHarmless(t *testing.T, value any, hosts Hosts) {
	t.Helper()
	switch v := value.(type) {
	case []any:
		for _, inner := range v {
			checkHarmless(t, inner, hosts)
		}
	case map[string]any:
		kind, _ := v["type"].(string)
		text, _ := v["text"].(string)
		switch kind {
		case "mrkdwn":
			checkNoMarkup(t, withoutLinks(text, hosts))
		case "markdown":
			text = withoutMarkdownLinks(text, hosts)
			checkNoMarkup(t, text)
			checkNoLink(t, noticeShape.ReplaceAllString(text, ""))
		case "broadcast", "user", "usergroup":
			t.Errorf("an element of type %s came through", kind)
		}
		for _, name := range []string{"url", "image_url"} {
			if raw, ok := v[name].(string); ok {
				checkLink(t, raw, v, hosts)
			}
		}
		for _, inner := range v {
			checkHarmless(t, inner, hosts)
		}
	case string:
		if strings.ContainsAny(v, "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029\u009b\x1b\x7f") {
			t.Errorf("%q has a character that changes how the rest is shown", v)
		}
	}
}

// checkLink wants a link that a browser reads in one way, and that its words show where it goes.
func checkLink(t *testing.T, raw string, object map[string]any, hosts Hosts) {
	t.Helper()
	end, host := endOfTarget(t, raw)
	if len(hosts) > 0 && (host == "wiki.example" || strings.HasSuffix(host, ".corp.example")) {
		return
	}
	for _, words := range []any{object["text"], object["description"], object["title"], object["alt_text"], object["accessibility_label"]} {
		if inner, ok := words.(map[string]any); ok {
			words = inner["text"]
		}
		if text, ok := words.(string); ok && object["type"] == "link" {
			checkInline(t, text, end)
		} else if ok {
			checkLabel(t, text, end)
		}
	}
}

// endOfTarget returns what has to be shown of a link: the end of its host, with the port, or the whole mail
// address. And the host of a web link.
func endOfTarget(t *testing.T, raw string) (end, host string) {
	t.Helper()
	u, err := neturl.Parse(raw)
	if err != nil || u.User != nil || strings.ContainsAny(raw, "\\\t\n\r <>") {
		t.Fatalf("%q is not a link", raw)
	}
	if u.Scheme == "mailto" {
		if strings.Count(u.Opaque, "@") != 1 || strings.ContainsAny(u.Opaque, "%,;") {
			t.Fatalf("%q may go to several addresses", raw)
		}
		return u.Opaque, ""
	}
	host = strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if host == "" || !strings.HasPrefix(strings.ToLower(raw), "http") || strings.ContainsFunc(host, func(r rune) bool { return r > unicode.MaxASCII }) {
		t.Fatalf("%q has no plain host", raw)
	}
	end = host[max(0, len(host)-27):]
	if port := u.Port(); port != "" {
		if len(port) > 5 || port[0] == '0' {
			t.Fatalf("%q has a port that browsers show in another way", raw)
		}
		end += ":" + port
	}
	return end, host
}

// checkLabel wants the target in front of the words, where Slack cuts nothing.
func checkLabel(t *testing.T, text, end string) {
	t.Helper()
	target, _, _ := strings.Cut(text, ": ")
	if !strings.HasSuffix(target, end) || utf8.RuneCountInString(target) > 64 {
		t.Errorf("%q goes to %q", text, end)
	}
}

// checkInline wants the target behind the words, near enough to be seen, with nothing between that could push
// it out of sight.
func checkInline(t *testing.T, text, end string) {
	t.Helper()
	if !strings.HasSuffix(strings.TrimSuffix(text, ")"), end) || utf8.RuneCountInString(text) > 150 || strings.ContainsAny(text, "\n\r\u2800\u3164\u115f\u1160\uffa0") {
		t.Errorf("%q goes to %q", text, end)
	}
}

var (
	mrkdwnLinks   = regexp.MustCompile(`(?i)<https?://(?:wiki\.example|[a-z0-9_.-]+\.corp\.example)\.?(?::[0-9]*)?(?:[/?#][^<>|]*)?(?:\|[^<>]*)?>`)
	markdownLinks = regexp.MustCompile(`(?i)\[[^][\\]*\]\(https?://(?:wiki\.example|[a-z0-9_.-]+\.corp\.example)\.?(?::[0-9]*)?(?:[/?#][^()\s]*)?\)`)
)

// withoutLinks replaces the links that may be there.
func withoutLinks(text string, hosts Hosts) string {
	if len(hosts) == 0 {
		return text
	}
	return mrkdwnLinks.ReplaceAllString(text, "LINK")
}

func withoutMarkdownLinks(text string, hosts Hosts) string {
	if len(hosts) == 0 {
		return text
	}
	return markdownLinks.ReplaceAllString(text, "LINK")
}

// FuzzLinks: whatever a text has, only links to the hosts come through.
func FuzzLinks(f *testing.F) {
	for _, seed := range []string{
		"<https://wiki.example/a?b=1&c|words & more>", "<https://wiki.example.evil.example|x>", "<https://wiki.example@evil.example|x>",
		"<http://a.corp.example:80/<!here>|y>", "[w](https://wiki.example/x) [w](https://evil.example)", `\[a](https://wiki.example) \\[b](https://wiki.example)`,
		"[a]([b](https://wiki.example))", "<https://wiki.example|a|b>", "<https://wiki.example>", "<https://wiki.example|<@U1>>", "[a\u202e](https://wiki.example)",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, limit := range []int{60, 3000} {
			out := listed.Text(text, limit)
			checkBounds(t, out, limit)
			checkNoMarkup(t, withoutLinks(strings.ToLower(out), listed))
			out = listed.markdown(text, limit)
			checkBounds(t, out, limit)
			out = withoutMarkdownLinks(strings.ToLower(out), listed)
			checkNoMarkup(t, out)
			checkNoLink(t, noticeShape.ReplaceAllString(out, ""))
		}
	})
}

// FuzzURL: a link that is taken has one target, and its words show it, however often they are rewritten.
func FuzzURL(f *testing.F) {
	for _, test := range badLinks {
		f.Add(test.url, "words")
	}
	for raw := range goodLinks {
		f.Add(raw, "words (evil.example)")
	}
	f.Fuzz(func(t *testing.T, raw, words string) {
		l, err := parseLink(raw)
		if err != nil {
			if text := err.Error(); len(text) > 200 || !utf8.ValidString(text) {
				t.Errorf("%q", text)
			}
			return
		}
		end, _ := endOfTarget(t, raw)
		checkLabel(t, l.label(words, maxButtonText), end)
		checkInline(t, l.inline(words, maxLinkWords), end)
		once := l.label(words, maxButtonText)
		if twice := l.label(once, maxButtonText); twice != once || utf8.RuneCountInString(once) > maxButtonText {
			t.Errorf("label %q, then %q", once, twice)
		}
		once = l.inline(words, maxLinkWords)
		if twice := l.inline(once, maxLinkWords); twice != once {
			t.Errorf("%q, then %q", once, twice)
		}
	})
}
