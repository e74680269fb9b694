package markup

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"notifier/internal/term"
)

func TestText(t *testing.T) {
	for _, test := range []struct {
		name, text string
		limit      int
		want       string
	}{
		{"empty", "", 60, ""},
		{"as it is", "plain *bold* _it_ `code` \"quoted\" 'x' [a](b) ünïcödé", 60, "plain *bold* _it_ `code` \"quoted\" 'x' [a](b) ünïcödé"},
		{"mentions", "<!channel> <!here> <@U1>", 90, "&lt;!channel&gt; &lt;!here&gt; &lt;@U1&gt;"},
		{"link", "<https://evil|bank>", 60, "&lt;https://evil|bank&gt;"},
		{"escaped before", "&lt;", 60, "&amp;lt;"},
		{"just fits", strings.Repeat("é", 60), 60, strings.Repeat("é", 60)},
		{"one too many", strings.Repeat("é", 61), 60, strings.Repeat("é", 60-noticeRoom) + "… [44 more characters cut]"},
		{"entities count as written", strings.Repeat("&", 13), 60, "&amp;&amp;&amp;… [10 more characters cut]"},
		{"entities just fit", strings.Repeat("&", 12), 60, strings.Repeat("&amp;", 12)},
		{"broken UTF-8", "a\xffb", 60, "a\uFFFDb"},
	} {
		got := Hosts(nil).Text(test.text, test.limit)
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestCutTrusted(t *testing.T) {
	link := "<https://example.com/a/long/path|words>"
	for _, test := range []struct {
		name, text string
		want       string
	}{
		{"short", "<!here> &amp; " + link, "<!here> &amp; " + link},
		{"link at the cut", "12345678 " + link + strings.Repeat("x", 60), "12345678 … [99 more characters cut]"},
		{"entity at the cut", strings.Repeat("x", 60-noticeRoom-3) + "&amp;" + strings.Repeat("y", 60),
			strings.Repeat("x", 60-noticeRoom-3) + "… [65 more characters cut]"},
		{"no link, no entity", "a < b & c" + strings.Repeat("x", 60), "a < b & cxxxxxxxx" + "… [52 more characters cut]"},
	} {
		if got := CutTrusted(test.text, 60); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

var noticeShape = regexp.MustCompile(`… \[(\d+) more characters cut\]$`)

func FuzzEscape(f *testing.F) {
	for _, seed := range []string{
		"", "<!channel>", "a & b", "&amp;&lt;&gt;", "<https://a|b>", "é\xff\xf0\x9f", "[a](b) \\[c](d)", "… [1 more characters cut]",
		strings.Repeat("<", 50), strings.Repeat("a&", 40),
	} {
		f.Add(seed, uint16(1), uint16(60))
		f.Add(seed, uint16(50_000), uint16(40_000))
	}
	unescape := strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&")
	f.Fuzz(func(t *testing.T, text string, times, n uint16) {
		text = strings.Repeat(text, min(int(times), 1+50_000/max(len(text), 1)))
		limit := min(max(int(n), noticeRoom), 40_000)
		valid := string([]rune(text)) // one replacement for each broken byte, as the escaper has it
		escaped := Hosts(nil).Text(text, limit)
		checkBounds(t, escaped, limit)
		checkNoMarkup(t, escaped)
		if body := unescape.Replace(escaped); body != term.Message(text) {
			checkNotice(t, body, term.Message(text))
		}

		plain := cutPlain(text, limit)
		checkBounds(t, plain, limit)
		if plain != valid {
			checkNotice(t, plain, valid)
		}

		checkBounds(t, CutTrusted(text, limit), limit)

		markdown := Hosts(nil).markdown(text, limit)
		checkBounds(t, markdown, limit)
		checkNoMarkup(t, markdown)
		checkNoLink(t, noticeShape.ReplaceAllString(markdown, ""))
	})
}

func checkBounds(t *testing.T, out string, limit int) {
	t.Helper()
	if n := utf8.RuneCountInString(out); n > limit {
		t.Errorf("%d characters, at most %d are allowed", n, limit)
	}
	if !utf8.ValidString(out) {
		t.Errorf("invalid UTF-8: %q", out)
	}
}

func checkNoMarkup(t *testing.T, out string) {
	t.Helper()
	if strings.ContainsAny(out, "<>") {
		t.Errorf("an angle bracket came through: %q", out)
	}
	bare := strings.NewReplacer("&lt;", "", "&gt;", "", "&amp;", "").Replace(out)
	if strings.Contains(bare, "&") {
		t.Errorf("a bare ampersand came through: %q", out)
	}
}

// checkNotice wants out to be a beginning of text and a notice that counts the rest.
func checkNotice(t *testing.T, out, text string) {
	t.Helper()
	found := noticeShape.FindStringSubmatchIndex(out)
	if found == nil {
		t.Errorf("%q is neither the text nor cut with a notice", out)
		return
	}
	kept, said := out[:found[0]], out[found[2]:found[3]]
	rest, ok := strings.CutPrefix(text, kept)
	if missing := utf8.RuneCountInString(rest); !ok || said != strconv.Itoa(missing) {
		t.Errorf("%q is not a beginning of %q with %d characters missing", out, text, missing)
	}
}

// checkNoLink wants every [ to be behind an odd number of backslashes.
func checkNoLink(t *testing.T, out string) {
	t.Helper()
	for i := range len(out) {
		if out[i] != '[' {
			continue
		}
		slashes := len(out[:i]) - len(strings.TrimRight(out[:i], `\`))
		if slashes%2 == 0 {
			t.Errorf("a link can start at byte %d of %q", i, out)
		}
	}
}
