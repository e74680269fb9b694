package markup

import (
	"encoding/json"
	"strings"
	"testing"

	"notifier/internal/term"
	"notifier/test/kit"
)

// blockPayloads covers each place in blocks where Slack reads mrkdwn, and fields that must stay unchanged. If
// want is empty, the payload must stay unchanged.
var blockPayloads = []struct{ name, in, want string }{
	{"actions",
		`[{"type":"actions","block_id":"b","elements":[
			{"type":"button","url":"https://ci.example?a=1&b=2","action_id":"deploy","value":"<prod>","style":"danger",
				"text":{"type":"plain_text","text":"R&D <x>","emoji":true},
				"confirm":{"title":{"type":"plain_text","text":"?"},"text":{"type":"mrkdwn","text":"<!here>"}}},
			{"type":"users_select","initial_user":"U1"}]}]`,
		`[{"type":"actions","block_id":"b","elements":[
			{"type":"button","url":"https://ci.example?a=1&b=2","action_id":"deploy","value":"<prod>","style":"danger",
				"text":{"type":"plain_text","text":"R&D <x>","emoji":true},
				"confirm":{"title":{"type":"plain_text","text":"?"},
					"text":{"type":"mrkdwn","text":"&lt;!here&gt;","verbatim":true}}},
			{"type":"users_select","initial_user":"U1"}]}]`},
	{"image",
		`[{"type":"image","image_url":"https://a.example/x?a=1&b=<2>","alt_text":"a < b","title":{"type":"plain_text","text":"<!here> & co"}}]`,
		""},
	{"markdown",
		`[{"type":"markdown","text":"# T\n<!here> [a](https://b.example) **x** <https://c.example> & \u202e<@U1>"}]`,
		`[{"type":"markdown","text":"# T\n&lt;!here> [a](https://b.example) **x** <https://c.example> & &lt;@U1>"}]`},
	{"rich text",
		`[{"type":"rich_text","elements":[
			{"type":"rich_text_section","elements":[
				{"type":"text","text":"<!here> & co","style":{"bold":true}},
				{"type":"broadcast","range":"channel"},{"type":"user","user_id":"U1","style":{"italic":true}},
				{"type":"usergroup","usergroup_id":"S1"},{"type":"team","team_id":"T1"},{"type":"user"},
				{"type":"link","url":"https://a.example?x&y","text":"a"},{"type":"channel","channel_id":"C1"}]},
			{"type":"rich_text_list","style":"bullet","elements":[{"type":"rich_text_section","elements":[
				{"type":"broadcast","range":"here"}]}]},
			{"type":"rich_text_quote","elements":[{"type":"broad\u0000cast","range":"here"}]}]}]`,
		`[{"type":"rich_text","elements":[
			{"type":"rich_text_section","elements":[
				{"type":"text","text":"<!here> & co","style":{"bold":true}},
				{"type":"text","text":"@channel"},{"type":"text","text":"@U1","style":{"italic":true}},
				{"type":"text","text":"@S1"},{"type":"text","text":"@T1"},{"type":"text","text":"@"},
				{"type":"link","url":"https://a.example?x&y","text":"a"},{"type":"channel","channel_id":"C1"}]},
			{"type":"rich_text_list","style":"bullet","elements":[{"type":"rich_text_section","elements":[
				{"type":"text","text":"@here"}]}]},
			{"type":"rich_text_quote","elements":[{"type":"text","text":"@here"}]}]}]`},
	{"section",
		`[{"type":"section","text":{"type":"mr\u202ekdwn","text":"<!channel> & *b*"},"expand":true,
			"fields":[{"type":"mrkdwn","text":"<@U1>"},{"type":"plain_text","text":"<@U1>"}],"accessory":null}]`,
		`[{"type":"section","text":{"type":"mrkdwn","text":"&lt;!channel&gt; &amp; *b*","verbatim":true},"expand":true,
			"fields":[{"type":"mrkdwn","text":"&lt;@U1&gt;","verbatim":true},{"type":"plain_text","text":"<@U1>"}],
			"accessory":null}]`},
	{"later than this code", `[{"type":"not_yet_known","deep":{"n":1e400,"body":{"type":"mrkdwn","text":"<!here>"}}}]`,
		`[{"type":"not_yet_known","deep":{"n":1e400,"body":{"type":"mrkdwn","text":"&lt;!here&gt;","verbatim":true}}}]`},
	{"duplicate names", `[{"type":"section","text":{"type":"plain_text","text":"x","type":"mrkdwn","text":"<!here>"}}]`,
		`[{"type":"section","text":{"type":"mrkdwn","text":"&lt;!here&gt;","verbatim":true}}]`},
	{"texts that are no strings", `[{"type":"mrkdwn","text":5},{"type":"markdown","text":[]},{"type":{"type":"user"}}]`,
		`[{"type":"mrkdwn","text":5,"verbatim":true},{"type":"markdown","text":[]},{"type":{"type":"text","text":"@"}}]`},
}

// attachmentPayloads are blockPayloads for attachments.
var attachmentPayloads = []struct{ name, in, want string }{
	{"legacy fields",
		`[{"color":"#36a64f","mrkdwn_in":["text"],"fallback":"<!here>","pretext":"<!channel>","author_name":"<a>",
			"author_subname":"<s>","author_link":"https://a.example?x&y","title":"<@U1>","title_link":"https://t.example?x&y",
			"text":"<https://evil.example|bank> & co","fields":[{"title":"<t>","value":"<!here>","short":false}],
			"image_url":"https://i.example?x&y","footer":"<f>","ts":1720710212.5}]`,
		`[{"color":"#36a64f","mrkdwn_in":["text"],"fallback":"&lt;!here&gt;","pretext":"&lt;!channel&gt;",
			"author_name":"&lt;a&gt;","author_subname":"&lt;s&gt;","author_link":"https://a.example?x&y","title":"&lt;@U1&gt;",
			"title_link":"https://t.example?x&y","text":"&lt;https://evil.example|bank&gt; &amp; co",
			"fields":[{"title":"&lt;t&gt;","value":"&lt;!here&gt;","short":false}],
			"image_url":"https://i.example?x&y","footer":"&lt;f&gt;","ts":1720710212.5}]`},
	{"actions",
		`[{"callback_id":"c","actions":[{"name":"deploy","text":"R&D","type":"button","value":"a&b","url":"https://c.example"}]}]`,
		""},
	{"confirmation", `[{"actions":[{"confirm":{"text":"<!here> & co"}}]}]`, `[{"actions":[{"confirm":{"text":"&lt;!here&gt; & co"}}]}]`},
	{"blocks",
		`[{"color":"good","blocks":[{"type":"section","text":{"type":"mrkdwn","text":"<!here>"},
			"fields":[{"type":"plain_text","text":"<x>"}]}]}]`,
		`[{"color":"good","blocks":[{"type":"section","text":{"type":"mrkdwn","text":"&lt;!here&gt;","verbatim":true},
			"fields":[{"type":"plain_text","text":"<x>"}]}]}]`},
	{"types of blocks", `[{"type":"mrkdwn","text":"<a>"},{"x":{"type":"user","user_id":"\u202e<b>"}}]`,
		`[{"type":"mrkdwn","text":"&lt;a&gt;","verbatim":true},{"x":{"type":"text","text":"@&lt;b&gt;"}}]`},
	{"attachments in a string", `[{"attachments":"[{\"text\":\"\\u003c!here\\u003e\"}]"}]`, `[{"attachments":""}]`},
	{"another structure",
		`[{"fields":{"0":{"title":"<!here>","value":"<!channel> & co"}},"text":["<!here>"],"later":{"x":["<@U1> & co"]},"attachments":[{"text":"<!here>"}],
			"blocks":"[{\"type\":\"rich_text\"}]"}]`,
		`[{"fields":{"0":{"title":"&lt;!here&gt;","value":"&lt;!channel&gt; &amp; co"}},"text":["&lt;!here&gt;"],
			"later":{"x":["&lt;@U1&gt; & co"]},"attachments":[{"text":"&lt;!here&gt;"}],"blocks":""}]`},
}

func TestSanitize(t *testing.T) {
	for _, test := range blockPayloads {
		checkSanitized(t, "block "+test.name, Blocks, test.in, test.want)
	}
	for _, test := range attachmentPayloads {
		checkSanitized(t, "attachment "+test.name, Attachments, test.in, test.want)
	}
	for _, broken := range []string{"", "[", `[{"secret":}]`} {
		if _, err := Blocks(json.RawMessage(broken)); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, expected an error that quotes nothing", broken, err)
		}
	}
}

func checkSanitized(
	t *testing.T, name string, sanitize func(json.RawMessage) (json.RawMessage, error), in, want string,
) {
	t.Helper()
	if want == "" {
		want = in
	}
	got, err := sanitize(json.RawMessage(in))
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	t.Run(name, func(t *testing.T) { kit.WantJSON(t, got, want) })
}

// FuzzSanitize looks for a mention in the result. The checker knows no names of fields but "blocks" and
// "attachments".
func FuzzSanitize(f *testing.F) {
	for _, test := range append(blockPayloads, attachmentPayloads...) {
		f.Add(test.in)
	}
	for _, test := range markdownTexts {
		block, err := json.Marshal([]any{map[string]any{"type": "markdown", "text": test.in}})
		kit.Check(f, err)
		f.Add(string(block))
	}
	f.Fuzz(func(t *testing.T, in string) {
		for _, attachments := range []bool{false, true} {
			sanitize := Blocks
			if attachments {
				sanitize = Attachments
			}
			out, err := sanitize(json.RawMessage(in))
			if err != nil {
				continue
			}
			after := decode(t, string(out))
			checkShape(t, decode(t, in), after)
			checkNoMention(t, after, attachments)
		}
	})
}

// decode decodes the first JSON value of a text.
func decode(t *testing.T, text string) (value any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	kit.Check(t, decoder.Decode(&value))
	return value
}

// checkShape wants the same structure, but for mentions that became text and for verbatim.
func checkShape(t *testing.T, before, after any) {
	t.Helper()
	switch before := before.(type) {
	case []any:
		list, ok := after.([]any)
		if !ok || len(list) != len(before) {
			t.Fatalf("%v became %v", before, after)
		}
		for i := range before {
			checkShape(t, before[i], list[i])
		}
	case map[string]any:
		object, ok := after.(map[string]any)
		if !ok {
			t.Fatalf("%v became %v", before, after)
		}
		if text, _ := object["text"].(string); object["type"] == "text" && strings.HasPrefix(text, "@") {
			return
		}
		for name, value := range before {
			if inner, ok := object[name]; !ok {
				t.Fatalf("%v lost %q: %v", before, name, object)
			} else if _, isText := value.(string); name != "verbatim" && !(name == "blocks" && isText) {
				checkShape(t, value, inner)
			}
		}
	case string:
		if _, ok := after.(string); !ok {
			t.Fatalf("%q became %v", before, after)
		}
	default:
		if before != after {
			t.Fatalf("%v became %v", before, after)
		}
	}
}

// checkNoMention fails if anything in a value notifies people. In attachments, but not in their blocks, no
// string may have a "<" at all.
func checkNoMention(t *testing.T, value any, attachment bool) {
	t.Helper()
	switch value := value.(type) {
	case string:
		if value != term.Message(value) || attachment && strings.ContainsAny(value, "<>") {
			t.Fatalf("%q came through", value)
		}
	case []any:
		for _, inner := range value {
			checkNoMention(t, inner, attachment)
		}
	case map[string]any:
		for name, inner := range value {
			checkNoMention(t, inner, name == "attachments" || attachment && name != "blocks")
		}
		text, _ := value["text"].(string)
		switch value["type"] {
		case "broadcast", "user", "usergroup", "team":
			t.Fatalf("%v notifies people", value)
		case "mrkdwn":
			if value["verbatim"] != true || strings.ContainsAny(text, "<>") {
				t.Fatalf("%v may notify people", value)
			}
		case "markdown":
			checkMarkdown(t, text)
		}
	}
}
