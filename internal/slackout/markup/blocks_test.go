package markup

import (
	"encoding/json"
	"strings"
	"testing"

	"notifier/test/kit"
)

// listed are the hosts of the tests whose links may have words.
var listed = Hosts{"*.corp.example", "wiki.example"}

// neutralised are blocks as a publisher sends them, and as they are posted: each type of the list and all it
// can have.
var neutralised = []struct{ name, in, want string }{
	{
		"section with texts",
		`[{"type":"section","block_id":"b","text":{"type":"mrkdwn","text":"<!channel> & *b*","verbatim":false},"expand":true,
		   "fields":[{"type":"mrkdwn","text":"<@U1>","emoji":true},{"type":"plain_text","text":"<@U1>","emoji":true}],"accessory":null}]`,
		`[{"type":"section","text":{"type":"mrkdwn","text":"&lt;!channel&gt; &amp; *b*","verbatim":true},"expand":true,
		   "fields":[{"type":"mrkdwn","text":"&lt;@U1&gt;","verbatim":true},{"type":"plain_text","text":"<@U1>","emoji":true}]}]`,
	},
	{
		"section with a button",
		`[{"type":"section","text":{"type":"plain_text","text":"x"},"accessory":{"type":"button","url":"https://evil.example?a=1&b=2","action_id":"deploy","value":"prod",
		   "style":"danger","accessibility_label":"Bank","text":{"type":"plain_text","text":"a & b"},
		   "confirm":{"title":{"type":"plain_text","text":"t"},"text":{"type":"mrkdwn","text":"<!here>"},"confirm":{"type":"plain_text","text":"y"},"deny":{"type":"plain_text","text":"n"},"style":"primary"}}}]`,
		`[{"type":"section","text":{"type":"plain_text","text":"x"},"accessory":{"type":"button","url":"https://evil.example?a=1&b=2",
		   "style":"danger","accessibility_label":"evil.example: Bank","text":{"type":"plain_text","text":"evil.example: a & b"},
		   "confirm":{"title":{"type":"plain_text","text":"t"},"text":{"type":"mrkdwn","text":"&lt;!here&gt;","verbatim":true},"confirm":{"type":"plain_text","text":"y"},"deny":{"type":"plain_text","text":"n"},"style":"primary"}}}]`,
	},
	{
		"actions",
		`[{"type":"actions","block_id":"b","elements":[
		  {"type":"button","url":"https://wiki.example/x","text":{"type":"plain_text","text":"Runbook"}},
		  {"type":"button","url":"mailto:ops@corp.example","text":{"type":"plain_text","text":"Mail"}},
		  {"type":"overflow","action_id":"a","confirm":{},"options":[
		    {"text":{"type":"plain_text","text":"Bank"},"description":{"type":"plain_text","text":"Go"},"url":"https://evil.example/x","value":"rm"},
		    {"text":{"type":"plain_text","text":"Graph"},"url":"https://g.corp.example:8443/","value":"1"}]}]}]`,
		`[{"type":"actions","elements":[
		  {"type":"button","url":"https://wiki.example/x","text":{"type":"plain_text","text":"Runbook"}},
		  {"type":"button","url":"mailto:ops@corp.example","text":{"type":"plain_text","text":"ops@corp.example: Mail"}},
		  {"type":"overflow","confirm":{},"options":[
		    {"text":{"type":"plain_text","text":"evil.example: Bank"},"description":{"type":"plain_text","text":"evil.example: Go"},"url":"https://evil.example/x","value":"https://evil.example/x"},
		    {"text":{"type":"plain_text","text":"Graph"},"url":"https://g.corp.example:8443/","value":"https://g.corp.example:8443/"}]}]}]`,
	},
	{
		"context",
		`[{"type":"context","block_id":"b","elements":[{"type":"mrkdwn","text":"<https://evil.example|bank> <https://wiki.example/a?b&c|a & b>"},{"type":"plain_text","text":"p"},
		   {"type":"image","image_url":"https://evil.example/a.png","alt_text":"Bank"}]}]`,
		`[{"type":"context","elements":[{"type":"mrkdwn","text":"&lt;https://evil.example|bank&gt; <https://wiki.example/a?b&amp;c|a &amp; b>","verbatim":true},{"type":"plain_text","text":"p"},
		   {"type":"image","image_url":"https://evil.example/a.png","alt_text":"evil.example: Bank"}]}]`,
	},
	{
		"image",
		`[{"type":"image","block_id":"b","image_url":"https://evil.example/a.png","alt_text":"","title":{"type":"plain_text","text":"Bank"}},
		  {"type":"image","image_url":"https://wiki.example/a.png","alt_text":"graph","title":{"type":"plain_text","text":"Graph"}}]`,
		`[{"type":"image","image_url":"https://evil.example/a.png","alt_text":"evil.example","title":{"type":"plain_text","text":"evil.example: Bank"}},
		  {"type":"image","image_url":"https://wiki.example/a.png","alt_text":"graph","title":{"type":"plain_text","text":"Graph"}}]`,
	},
	{
		"header, alert and divider",
		`[{"type":"header","text":{"type":"plain_text","text":"<!here>\u202ex"},"level":1.50},{"type":"alert","text":{"type":"mrkdwn","text":"<!here>"},"level":"error"},{"type":"divider","block_id":"d"}]`,
		`[{"type":"header","text":{"type":"plain_text","text":"<!here>x"},"level":1.50},{"type":"alert","text":{"type":"mrkdwn","text":"&lt;!here&gt;","verbatim":true},"level":"error"},{"type":"divider"}]`,
	},
	{
		"markdown",
		`[{"type":"markdown","block_id":"b","text":"# T\n[bank](https://evil.example) ![i](https://evil.example) \\[x] \\\\[y](z) <!here> **b** & c [w](https://wiki.example/)"}]`,
		`[{"type":"markdown","text":"# T\n\\[bank](https://evil.example) !\\[i](https://evil.example) \\[x] \\\\\\[y](z) &lt;!here&gt; **b** &amp; c [w](https://wiki.example/)"}]`,
	},
	{
		"rich text",
		`[{"type":"rich_text","block_id":"b","elements":[
		  {"type":"rich_text_section","border":0,"elements":[
		    {"type":"text","text":"<!here> & ","style":{"bold":true,"italic":false,"strike":false,"code":false,"underline":true,"highlight":false,"client_highlight":false,"unlink":true}},
		    {"type":"broadcast","range":"channel"},
		    {"type":"user","user_id":"U1","style":{"bold":true}},
		    {"type":"usergroup","usergroup_id":"S1"},
		    {"type":"link","url":"https://evil.example/login","text":" my\n\nbank ","unsafe":false},
		    {"type":"link","url":"https://bare.example","text":"https://bare.example","style":{"code":true}},
		    {"type":"link","url":"https://a.corp.example./x","text":"dashboard"},
		    {"type":"channel","channel_id":"C1"},
		    {"type":"emoji","name":"wave","unicode":"1f44b","skin_tone":2},
		    {"type":"color","value":"#ff0000"},
		    {"type":"date","timestamp":1720710212,"format":"{date}","timezone":"UTC","fallback":"then","url":"https://evil.example"}]},
		  {"type":"rich_text_list","style":"bullet","indent":0,"offset":1,"border":0,"elements":[
		    {"type":"rich_text_section","elements":[{"type":"broadcast","range":"here"}]}]},
		  {"type":"rich_text_quote","border":1,"elements":[{"type":"text","text":"q"}]},
		  {"type":"rich_text_preformatted","border":0,"language":"go","elements":[{"type":"text","text":"p"}]}]}]`,
		`[{"type":"rich_text","elements":[
		  {"type":"rich_text_section","border":0,"elements":[
		    {"type":"text","text":"<!here> & ","style":{"bold":true,"italic":false,"strike":false,"code":false,"underline":true,"highlight":false,"client_highlight":false,"unlink":true}},
		    {"type":"text","text":"@channel"},
		    {"type":"text","text":"@U1","style":{"bold":true}},
		    {"type":"text","text":"@S1"},
		    {"type":"link","url":"https://evil.example/login","text":"my bank (evil.example)"},
		    {"type":"link","url":"https://bare.example","style":{"code":true}},
		    {"type":"link","url":"https://a.corp.example./x","text":"dashboard"},
		    {"type":"channel","channel_id":"C1"},
		    {"type":"emoji","name":"wave","unicode":"1f44b","skin_tone":2},
		    {"type":"color","value":"#ff0000"},
		    {"type":"date","timestamp":1720710212,"format":"{date}","timezone":"UTC","fallback":"then"}]},
		  {"type":"rich_text_list","style":"bullet","indent":0,"offset":1,"border":0,"elements":[
		    {"type":"rich_text_section","elements":[{"type":"text","text":"@here"}]}]},
		  {"type":"rich_text_quote","border":1,"elements":[{"type":"text","text":"q"}]},
		  {"type":"rich_text_preformatted","border":0,"language":"go","elements":[{"type":"text","text":"p"}]}]}]`,
	},
	{
		"table",
		`[{"type":"table","block_id":"b","column_settings":[null,{"align":"right","is_wrapped":true}],"rows":[[{"type":"raw_text","text":"<a>"},{"type":"raw_number","value":12345678901234567890,"text":"1"},
		   {"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"broadcast","range":"here"}]}]}]]}]`,
		`[{"type":"table","column_settings":[null,{"align":"right","is_wrapped":true}],"rows":[[{"type":"raw_text","text":"<a>"},{"type":"raw_number","value":12345678901234567890,"text":"1"},
		   {"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"text","text":"@here"}]}]}]]}]`,
	},
	{
		"a field twice: only the last one is left, and it is escaped",
		`[{"type":"section","text":{"type":"mrkdwn","text":"<!here>","text":"<!channel>"}}]`,
		`[{"type":"section","text":{"type":"mrkdwn","text":"&lt;!channel&gt;","verbatim":true}}]`,
	},
}

func TestBlocks(t *testing.T) {
	for _, test := range neutralised {
		t.Run(test.name, func(t *testing.T) {
			got, err := listed.Blocks(json.RawMessage(test.in))
			kit.Check(t, err)
			kit.WantJSON(t, got, test.want)
			kit.Check(t, CheckBlocks(json.RawMessage(test.in)))
		})
	}
}

const blockNames = "actions, alert, context, divider, header, image, markdown, rich_text, section, table"

// rejected are blocks that are not posted, and what the detail names.
var rejected = []struct{ in, want string }{
	{``, "blocks is not valid JSON, expected an array of blocks"},
	{`[{]`, "blocks is not valid JSON, expected an array of blocks"},
	{`null`, "blocks is absent or null, expected an array"},
	{`{}`, "blocks is an object, expected an array"},
	{`[1]`, "blocks[0] is a number, expected an object"},
	{`[{"type":"divider"},null]`, "blocks[1] is absent or null, expected an object"},
	{`[{}]`, "blocks[0].type is absent or null, expected one of " + blockNames},
	{`[{"type":"video"}]`, `blocks[0].type is "video", expected one of ` + blockNames},
	{`[{"type":"a\u202e\u001b[2J"}]`, `blocks[0].type is "a\u202e\x1b[2J", expected one of ` + blockNames},
	{`[{"type":"divider","x":1}]`, `blocks[0] has the field "x", expected none but block_id`},
	{`[{"type":"divider","TYPE":"video"}]`, `blocks[0] has the field "TYPE", expected none but block_id`},
	{`[{"type":"header","text":{"type":"mrkdwn","text":"x"}}]`, `blocks[0].text.type is "mrkdwn", expected one of plain_text`},
	{`[{"type":"section","text":{"type":"mrkdwn","text":5}}]`, "blocks[0].text.text is a number, expected a string"},
	{`[{"type":"section","fields":"x"}]`, "blocks[0].fields is a string, expected an array"},
	{`[{"type":"section","expand":"x"}]`, "blocks[0].expand is a string, expected a boolean"},
	{`[{"type":"header","level":true}]`, "blocks[0].level is a boolean, expected a number"},
	{`[{"type":"section","accessory":{"type":"users_select"}}]`, `blocks[0].accessory.type is "users_select", expected one of button, image, overflow`},
	{`[{"type":"actions","elements":[{"type":"button","text":{"type":"plain_text","text":"x"}}]}]`, "blocks[0].elements[0].url is absent, expected the URL that it opens"},
	{`[{"type":"actions","elements":[{"type":"overflow","options":[{"value":"x"}]}]}]`, "blocks[0].elements[0].options[0].url is absent, expected the URL that it opens"},
	{`[{"type":"actions","elements":[{"type":"button","url":"javascript:alert(1)"}]}]`, `blocks[0].elements[0].url has the scheme "javascript", expected http, https or mailto`},
	{`[{"type":"actions","elements":[{"type":"button","url":"https://x","confirm":{"type":"x"}}]}]`, `blocks[0].elements[0].confirm has the field "type", expected none but confirm, deny, style, text, title`},
	{`[{"type":"image","image_url":"mailto:a@b.example"}]`, "blocks[0].image_url is a mail link, expected http or https"},
	{`[{"type":"image","slack_file":{"id":"F1"}}]`, `blocks[0] has the field "slack_file", expected none but alt_text, block_id, image_url, title`},
	{`[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"link","url":"https://bank.example@evil.example","text":"x"}]}]}]`, "blocks[0].elements[0].elements[0].url has a user before its host, expected none"},
	{`[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"work_object_mention"}]}]}]`, `blocks[0].elements[0].elements[0].type is "work_object_mention", expected one of broadcast, channel, color, date, emoji, link, text, user, usergroup`},
	{`[{"type":"table","rows":[[1]]}]`, "blocks[0].rows[0][0] is a number, expected an object"},
}

func TestBlocksThatAreRejected(t *testing.T) {
	for _, test := range rejected {
		err := CheckBlocks(json.RawMessage(test.in))
		if err == nil || err.Error() != test.want {
			t.Errorf("%s: %v\nexpected %s", test.in, err, test.want)
		}
	}
	// Slack's other types of blocks: they carry links behind words, or work only with an app that answers.
	for _, kind := range strings.Fields(`video task_card plan card carousel container layout data_table data_visualization file call input
		context_actions auth_provider rich_text_input`) {
		if err := CheckBlocks(json.RawMessage(`[{"type":"` + kind + `"}]`)); err == nil || !strings.Contains(err.Error(), `"`+kind+`"`) {
			t.Errorf("%s: %v, expected an error that names it", kind, err)
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
		got, err := listed.Blocks(json.RawMessage(test.in))
		kit.Check(t, err)
		text := longest(kit.DecodeJSON(t, string(got)))
		if n := len([]rune(text)); n > test.limit || n < test.limit-noticeRoom-5 || !noticeShape.MatchString(text) {
			t.Errorf("%s: %d characters, want nearly %d and a notice: …%s", test.name, n, test.limit, text[len(text)-40:])
		}
	}
	got, err := listed.Blocks(json.RawMessage(block("actions", "elements", `[{"type":"button","url":"https://evil.example","text":`+object("plain_text")+`}]`)))
	kit.Check(t, err)
	if text := longest(kit.DecodeJSON(t, string(got))); text != "evil.example: "+strings.Repeat("&", 60)+"…" {
		t.Errorf("button %q, expected the host and 75 characters", text)
	}
	got, err = listed.Blocks(json.RawMessage(block("rich_text", "elements", block("rich_text_section", "elements", `[{"type":"link","url":"https://evil.example","text":"`+long+`"}]`))))
	kit.Check(t, err)
	if text := longest(kit.DecodeJSON(t, string(got))); text != strings.Repeat("&", 134)+"… (evil.example)" {
		t.Errorf("link %q, expected 150 characters that end in the host", text)
	}
}

// longest returns the longest string in a JSON value.
func longest(value any) (text string) {
	eachString(value, func(s string) {
		if len(s) > len(text) {
			text = s
		}
	})
	return text
}

// eachString calls do for each string in a JSON value, names of fields aside.
func eachString(value any, do func(string)) {
	switch v := value.(type) {
	case string:
		do(v)
	case []any:
		for _, inner := range v {
			eachString(inner, do)
		}
	case map[string]any:
		for _, inner := range v {
			eachString(inner, do)
		}
	}
}
