package slackout

import (
	"encoding/json"
	"strings"
	"testing"

	"notifier/internal/testkit"
)

// neutralised are blocks as a publisher sends them, and as they are posted.
var neutralised = []struct{ name, in, want string }{
	{
		"nothing to do",
		`[{"type":"divider"},{"type":"image","image_url":"https://x/y.png","alt_text":"<a>"},{"type":"not_yet_known","n":1.50,"big":12345678901234567890,"list":[null,true,[]]}]`,
		`[{"type":"divider"},{"type":"image","image_url":"https://x/y.png","alt_text":"<a>"},{"type":"not_yet_known","n":1.50,"big":12345678901234567890,"list":[null,true,[]]}]`,
	},
	{
		"mrkdwn in text, fields, accessory, context and confirm",
		`[{"type":"section","text":{"type":"mrkdwn","text":"<!channel> & *b*","verbatim":false},
		   "fields":[{"type":"mrkdwn","text":"<@U1>"},{"type":"plain_text","text":"<@U1>"}],
		   "accessory":{"type":"button","url":"https://x?a=1&b=2","text":{"type":"plain_text","text":"a & b"},
		     "confirm":{"text":{"type":"mrkdwn","text":"<!here>"}}}},
		  {"type":"context","elements":[{"type":"mrkdwn","text":"<https://evil|bank>"}]}]`,
		`[{"type":"section","text":{"type":"mrkdwn","text":"&lt;!channel&gt; &amp; *b*","verbatim":true},
		   "fields":[{"type":"mrkdwn","text":"&lt;@U1&gt;","verbatim":true},{"type":"plain_text","text":"<@U1>"}],
		   "accessory":{"type":"button","url":"https://x?a=1&b=2","text":{"type":"plain_text","text":"a & b"},
		     "confirm":{"text":{"type":"mrkdwn","text":"&lt;!here&gt;","verbatim":true}}}},
		  {"type":"context","elements":[{"type":"mrkdwn","text":"&lt;https://evil|bank&gt;","verbatim":true}]}]`,
	},
	{
		"mrkdwn far inside a block that is not known",
		`[{"type":"new","attachments":[{"blocks":[{"type":"section","text":{"type":"mrkdwn","text":"<!here>"}}]}]}]`,
		`[{"type":"new","attachments":[{"blocks":[{"type":"section","text":{"type":"mrkdwn","text":"&lt;!here&gt;","verbatim":true}}]}]}]`,
	},
	{
		"markdown",
		`[{"type":"markdown","text":"# T\n[bank](https://evil) \\[x] \\\\[y](z) <!here> **b** & c"}]`,
		`[{"type":"markdown","text":"# T\n\\[bank](https://evil) \\[x] \\\\\\[y](z) &lt;!here&gt; **b** &amp; c"}]`,
	},
	{
		"rich text",
		`[{"type":"rich_text","block_id":"b","elements":[
		  {"type":"rich_text_section","elements":[
		    {"type":"text","text":"<!here> & ","style":{"bold":true}},
		    {"type":"broadcast","range":"channel"},
		    {"type":"user","user_id":"U1","style":{"bold":true}},
		    {"type":"usergroup","usergroup_id":"S1"},
		    {"type":"link","url":"https://evil","text":"bank","unsafe":false},
		    {"type":"link","url":"https://bare"},
		    {"type":"channel","channel_id":"C1"},
		    {"type":"emoji","name":"wave"},
		    {"type":"date","timestamp":1,"format":"{date}","url":"https://evil"},
		    {"type":"canvas_user_mention","user_id":"U2"},
		    {"type":"work_object_mention","url":"https://evil","text":"bank"}]},
		  {"type":"rich_text_list","style":"bullet","elements":[
		    {"type":"rich_text_section","elements":[{"type":"broadcast","range":"here"}]}]},
		  {"type":"rich_text_not_yet_known","elements":[{"type":"user","user_id":"U3"}]}]}]`,
		`[{"type":"rich_text","block_id":"b","elements":[
		  {"type":"rich_text_section","elements":[
		    {"type":"text","text":"<!here> & ","style":{"bold":true}},
		    {"type":"text","text":"@channel"},
		    {"type":"text","text":"@U1","style":{"bold":true}},
		    {"type":"text","text":"@S1"},
		    {"type":"text","text":"bank (https://evil)"},
		    {"type":"text","text":"https://bare"},
		    {"type":"channel","channel_id":"C1"},
		    {"type":"emoji","name":"wave"},
		    {"type":"date","timestamp":1,"format":"{date}"},
		    {"type":"text","text":"[canvas_user_mention]"},
		    {"type":"text","text":"bank (https://evil)"}]},
		  {"type":"rich_text_list","style":"bullet","elements":[
		    {"type":"rich_text_section","elements":[{"type":"text","text":"@here"}]}]},
		  {"type":"rich_text_not_yet_known","elements":[{"type":"text","text":"@U3"}]}]}]`,
	},
	{
		"rich text in a table's cell",
		`[{"type":"table","rows":[[{"type":"raw_text","text":"<a>"},{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"broadcast","range":"here"}]}]}]]}]`,
		`[{"type":"table","rows":[[{"type":"raw_text","text":"<a>"},{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"text","text":"@here"}]}]}]]}]`,
	},
	{
		"a field twice: only the last one is left, and it is escaped",
		`[{"type":"section","text":{"type":"mrkdwn","text":"<!here>","text":"<!channel>"}}]`,
		`[{"type":"section","text":{"type":"mrkdwn","text":"&lt;!channel&gt;","verbatim":true}}]`,
	},
	{
		"types that are none",
		`[1,"x",null,[{"type":"mrkdwn","text":"<!here>"}],{"type":7,"text":{"type":"mrkdwn","text":5}},{"type":"rich_text","elements":"x"},{"type":"rich_text","elements":[3]}]`,
		`[1,"x",null,[{"type":"mrkdwn","text":"&lt;!here&gt;","verbatim":true}],{"type":7,"text":{"type":"mrkdwn","text":5,"verbatim":true}},{"type":"rich_text","elements":"x"},{"type":"rich_text","elements":[3]}]`,
	},
}

func TestNeutraliseBlocks(t *testing.T) {
	for _, test := range neutralised {
		t.Run(test.name, func(t *testing.T) {
			got, err := neutraliseBlocks(json.RawMessage(test.in))
			testkit.Check(t, err)
			wantJSON(t, got, test.want)
		})
	}
	for _, broken := range []string{``, `{}`, `"x"`, `[{]`, `null`} {
		if got, err := neutraliseBlocks(json.RawMessage(broken)); err == nil {
			t.Errorf("%q: %s, want an error", broken, got)
		}
	}
}

func TestBlockTextsAreCut(t *testing.T) {
	long := strings.Repeat("&", 13_000)
	block := func(kind, field, inner string) string {
		return `[{"type":"` + kind + `","` + field + `":` + inner + `}]`
	}
	object := func(kind string) string { return `{"type":"` + kind + `","text":"` + long + `"}` }
	for _, test := range []struct {
		name, in string
		limit    int
	}{
		{"header", block("header", "text", object("plain_text")), 150},
		{"section", block("section", "text", object("mrkdwn")), 3000},
		{"section's plain text", block("section", "text", object("plain_text")), 3000},
		{"section's field", block("section", "fields", "["+object("mrkdwn")+"]"), 2000},
		{"context", block("context", "elements", "["+object("mrkdwn")+"]"), 3000},
		{"markdown", block("markdown", "text", `"`+long+`"`), 12000},
	} {
		got, err := neutraliseBlocks(json.RawMessage(test.in))
		testkit.Check(t, err)
		text := longest(decode(t, string(got)))
		if n := len([]rune(text)); n > test.limit || n < test.limit-noticeRoom-5 || !noticeShape.MatchString(text) {
			t.Errorf("%s: %d characters, want nearly %d and a notice: …%s", test.name, n, test.limit, text[len(text)-40:])
		}
	}
}

// longest returns the longest string in a JSON value.
func longest(value any) (text string) {
	keep := func(s string) {
		if len(s) > len(text) {
			text = s
		}
	}
	switch v := value.(type) {
	case string:
		keep(v)
	case []any:
		for _, inner := range v {
			keep(longest(inner))
		}
	case map[string]any:
		for _, inner := range v {
			keep(longest(inner))
		}
	}
	return text
}

func FuzzBlocks(f *testing.F) {
	f.Add(`[{"type":"section","text":{"type":"mrkdwn","text":"<!channel> &"},"fields":[{"type":"plain_text","text":"x"}]}]`)
	f.Add(`[{"type":"markdown","text":"[a](b) \\[c](d)"},{"type":"x","y":[[{"type":"mrkdwn","text":"<@U1>","text":"<@U2>"}]]}]`)
	f.Add(`[{"type":"rich_text","elements":[{"type":"rich_text_list","elements":[{"type":"rich_text_section","elements":[{"type":"link","url":"https://x","text":"y"}]}]}]}]`)
	f.Fuzz(func(t *testing.T, in string) {
		out, err := neutraliseBlocks(json.RawMessage(in))
		if err != nil {
			return
		}
		checkHarmless(t, decode(t, string(out)), false)
		again, err := neutraliseBlocks(out)
		if err != nil || len(decode(t, string(again)).([]any)) != len(decode(t, string(out)).([]any)) {
			t.Errorf("%s made of %s is no list of blocks any more: %v", again, out, err)
		}
	})
}

// checkHarmless looks for anything that could ping or lie. inRich: the value is an element of rich text.
func checkHarmless(t *testing.T, value any, inRich bool) {
	t.Helper()
	switch v := value.(type) {
	case []any:
		for _, inner := range v {
			checkHarmless(t, inner, inRich)
		}
	case map[string]any:
		kind, _ := v["type"].(string)
		text, _ := v["text"].(string)
		if kind == "mrkdwn" || kind == "markdown" {
			checkNoMarkup(t, text)
		}
		switch kind {
		case "broadcast", "user", "usergroup", "link":
			if inRich {
				t.Errorf("an element of type %s came through", kind)
			}
		}
		for name, inner := range v {
			checkHarmless(t, inner, strings.HasPrefix(kind, "rich_text") && name == "elements")
		}
	}
}
