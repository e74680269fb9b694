package markup

import (
	"strings"
	"testing"
	"unicode/utf8"

	"notifier/internal/term"
)

// cutAt60 is the longest beginning of a text of single characters that a limit of 60 leaves.
const cutAt60 = 60 - noticeRoom

func TestText(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", ""},
		{"mentions", "<!channel> <@U1>", "&lt;!channel&gt; &lt;@U1&gt;"},
		{"escaped before", "&lt;", "&amp;lt;"},
		{"control and bidirectional characters", "a\x00b\x1b[2J\u202ec\u2066d\tx\n", "abcd\tx\n"},
		{"mention behind a control character", "<\x00!here>", "&lt;!here&gt;"},
		{"invalid UTF-8", "a\xffb", "a\uFFFDb"},
		{"just fits", strings.Repeat("é", 60), strings.Repeat("é", 60)},
		{"entities count as written", strings.Repeat("&", 13), "&amp;&amp;… [11 more characters cut]"},
		{"code block", "```\n" + strings.Repeat("x", 70) + "\n```",
			"```\n" + strings.Repeat("x", cutAt60-4) + "\n```… [65 more characters cut]"},
		{"closed code block", "```x```" + strings.Repeat("y", 60),
			"```x```" + strings.Repeat("y", cutAt60-7) + "… [54 more characters cut]"},
	} {
		if got := Text(test.text, 60); got != test.want {
			t.Errorf("%s: %q, expected %q", test.name, got, test.want)
		}
	}
}

func TestCutKeepsEntitiesAndLinksWhole(t *testing.T) {
	link := "<https://example.com/a/long/path|words>"
	for _, test := range []struct{ name, text, want string }{
		{"link at the cut", "12345 " + link + strings.Repeat("x", 60), "12345 … [99 more characters cut]"},
		{"entity at the cut", strings.Repeat("x", cutAt60-3) + "&amp;" + strings.Repeat("y", 60),
			strings.Repeat("x", cutAt60-3) + "… [65 more characters cut]"},
		{"neither", "a < b & c" + strings.Repeat("x", 60), "a < b & cxxxx… [56 more characters cut]"},
		{"code block", "```" + strings.Repeat("x", 80),
			"```" + strings.Repeat("x", cutAt60-3) + "\n```… [70 more characters cut]"},
	} {
		if got := Cut(test.text, 60); got != test.want {
			t.Errorf("%s: %q, expected %q", test.name, got, test.want)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, seed := range []string{
		"<!channel>", "&amp;&lt;&gt;", "<https://a|b>", "é\xff\xf0\x9f", strings.Repeat("a&", 40),
		strings.Repeat("```\n", 20), "\u202e\u0085",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, limit := range []int{60, 3000} {
			for name, got := range map[string]string{"Text": Text(text, limit), "Cut": Cut(text, limit)} {
				if !utf8.ValidString(got) || utf8.RuneCountInString(got) > limit {
					t.Fatalf("%s: %d characters, limit %d: %q", name, utf8.RuneCountInString(got), limit, got)
				}
			}
			escaped := Text(text, limit)
			if strings.ContainsAny(escaped, "<>") || escaped != term.Message(escaped) {
				t.Fatalf("%q became %q", text, escaped)
			}
			whole := strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(escaped)
			if cut := strings.HasSuffix(escaped, " more characters cut]"); !cut && whole != term.Message(text) {
				t.Fatalf("%q became %q, which reads %q", text, escaped, whole)
			}
		}
	})
}
