package term_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"notifier/internal/term"
	"notifier/test/kit"
)

// hostile has one character of each kind: an escape sequence, DEL, C1, an override, an isolate, a mark, a
// separator, a zero width, a byte-order mark, a tag, an invalid byte. It ends with harmless text.
const (
	hostile      = "a\x1b[2J\x7f\u009b31m\u202egpj\u2066x\u200f\u2028y\u200b\ufeff\U000e0001\xffé שלום 👩"
	hostileShown = "a?[2J??31m?gpj?x??y????é שלום 👩"
)

// TestForeignText: whatever a publisher wrote, a terminal shows it and does not obey it.
func TestForeignText(t *testing.T) {
	t.Parallel()
	if got := term.Printable("a\tb\n" + hostile); got != "a?b?"+hostileShown {
		t.Errorf("%q", got)
	}
	if got := term.Lines(hostile + "\n" + hostile); got != hostileShown+"\n"+hostileShown {
		t.Errorf("%q", got)
	}
	if got := term.Cell(strings.Repeat("ä", 51)); got != strings.Repeat("ä", 48)+"…" {
		t.Errorf("%q, expected 100 bytes at most", got)
	}
	if got := term.Cell(""); got != "-" {
		t.Errorf("%q", got)
	}
	var out strings.Builder
	table := term.NewTable(&out)
	table.Row(hostile, 1)
	kit.Check(t, table.Flush())
	if got := out.String(); got != hostileShown+"   1\n" {
		t.Errorf("%q", got)
	}
}

// Message removes reordering characters and keeps the ones that scripts need.
func TestMessagesStayReadable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a\u202egpj\u202c.exe":           "agpj.exe",
		"\u2066a\u2067b\u2068c\u2069":    "abc",
		"\u202aa\u202bb\u202dc":          "abc",
		"a\x1b[31m\x00\x7f\u009b\u0085b": "ab",
		"\x1b[1;31mred\x1b[0m \u009b38;2;1;2;3mred\u009bm \x1b[Kx\x1b[?25l\x1b[3 q": "red red x",
		"\x1b]0;title\x07a \x1b]8;;https://ci.example/1\x1b\\link\x1b]8;;\x1b\\":    "a link",
		"\u009d0;title\u009ca \u009d0;title\x07b":                                   "a b",
		"\x1b[1mbold\x1b(B\x1b[m":                                                   "bold",
		"\x1b]0;without an end\nnext":                                               "]0;without an end\nnext",
		"\x1b[31":                                                                   "[31",
		"a\x1b[31\nb":                                                               "a[31\nb",
		"\x1b\x1b[31m[31mx":                                                         "[31mx",
		"[31m and ]0; are words":                                                    "[31m and ]0; are words",
		"a\r\n\tb\u2028c\u2029d":                                                    "a\r\n\tb\nc\nd",
		"שלום\u200f! \u061cمرحبا می\u200cخواهم 👩\u200d💻": "שלום\u200f! \u061cمرحبا می\u200cخواهم 👩\u200d💻",
		"\xff\xfe": "\ufffd\ufffd",
	} {
		if got := term.Message(in); got != want {
			t.Errorf("%q: %q, expected %q", in, got, want)
		}
	}
}

// TestJSONStaysTheSameData: escaped as JSON does it, with the same meaning.
func TestJSONStaysTheSameData(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	kit.Check(t, term.NewJSON(&out).Encode(map[string]string{hostile: hostile + "\\\u202e<&>"}))
	checkPrintable(t, out.String())
	var got map[string]string
	kit.Check(t, json.Unmarshal([]byte(out.String()), &got))
	valid := strings.ToValidUTF8(hostile, "\ufffd")
	if got[valid] != valid+"\\\u202e<&>" {
		t.Errorf("%q", got)
	}
}

func checkPrintable(t *testing.T, text string) {
	t.Helper()
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }) {
		t.Errorf("%q, expected nothing that a terminal obeys", text)
	}
}

// FuzzForeign checks the guarantees of each function.
func FuzzForeign(f *testing.F) {
	f.Add(hostile)
	f.Add("\\\u202e\r\n\t\xf0\x9f\x91")
	f.Fuzz(func(t *testing.T, text string) {
		checkPrintable(t, term.Lines(text))
		if shown := term.Printable(text); strings.ContainsAny(shown, "\n\t") || utf8.RuneCountInString(shown) != utf8.RuneCountInString(text) {
			t.Errorf("%q", shown)
		}
		if cell := term.Cell(text); cell == "" || len(cell) > 100 {
			t.Errorf("%q", cell)
		}
		if shown := term.Cut(term.Printable(text), 9); len(shown) > 9 || !utf8.ValidString(shown) {
			t.Errorf("%q", shown)
		}
		message := term.Message(text)
		if again := term.Message(message); again != message || !utf8.ValidString(message) || strings.ContainsAny(message, "\x1b\u009b\u202a\u202e\u2066\u2069\u2028") {
			t.Errorf("%q, then %q", message, again)
		}
		var out strings.Builder
		n, err := term.Escaper(&out).Write([]byte(text))
		if n != len(text) || err != nil {
			t.Errorf("%d of %d bytes, %v", n, len(text), err)
		}
		checkPrintable(t, out.String())
		out.Reset()
		kit.Check(t, term.NewJSON(&out).Encode(text))
		var back string
		if err := json.Unmarshal([]byte(out.String()), &back); err != nil || back != string([]rune(text)) {
			t.Errorf("%q and %v made of %q", back, err, text)
		}
	})
}

// Bytes shows no terminal sequence, and its result identifies the original bytes.
func TestBytes(t *testing.T) {
	for given, want := range map[string]string{
		"":                           "",
		"disk\tfull\nüber\u4e16 😀\n": "disk\tfull\nüber\u4e16 😀\n",
		"a\rb\x00\x1b[2J\x7f":        `a\rb\x00\x1b[2J\x7f`,
		"Gr\xfc\xdfe":                `Gr\xfc\xdfe`,
		"\u202eevil\u200b\u2028":     `\u202eevil\u200b\u2028`,
		"\ufffd\xff":                 "\ufffd" + `\xff`,
		"\U000e0041":                 `\U000e0041`,
	} {
		if got := term.Bytes([]byte(given)); got != want {
			t.Errorf("%q is shown as %q, expected %q", given, got, want)
		}
	}
}

// TestEscaperFindsEachByteAtEachPlace: lines are looked at in words of eight bytes.
func TestEscaperFindsEachByteAtEachPlace(t *testing.T) {
	t.Parallel()
	for c := range 256 {
		for place := range 16 {
			line := []byte("sixteen bytes of plain ASCII")
			line[place] = byte(c)
			var got strings.Builder
			_, err := term.Escaper(&got).Write(line)
			kit.Check(t, err)
			want := string(line)
			if plain := c >= ' ' && c <= '~' || c == '\n' || c == '\t'; !plain {
				code := c
				if c >= utf8.RuneSelf { // no UTF-8
					code = utf8.RuneError
				}
				want = fmt.Sprintf(`%s\u%04x%s`, line[:place], code, line[place+1:])
			}
			if got.String() != want {
				t.Fatalf("byte %#x at %d: %q, expected %q", c, place, got.String(), want)
			}
		}
	}
}
