package markup

import (
	"bytes"
	"cmp"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

const fenced = "```html\n<!DOCTYPE html>\n<@U1> <#if>\n```"

// markdownTexts contain mentions in code, and in text that parsers may not agree is code. If want is empty,
// the text must stay unchanged.
var markdownTexts = []struct{ name, in, want string }{
	{"nothing to escape", "# T\n**a** <https://a.example> a < b && c\n", ""},
	{"mentions", "<!here> <@U1> <#C1>", "&lt;!here> &lt;@U1> &lt;#C1>"},
	{"fenced code", "See\n" + fenced + "\ndone", ""},
	{"a tag before fenced code", "<!here>\n" + fenced,
		"&lt;!here>\n```html\n&lt;!DOCTYPE html>\n&lt;@U1> &lt;#if>\n```"},
	{"a mention behind fenced code", fenced + "\n- a <@U1>", fenced + "\n- a &lt;@U1>"},
	{"Windows line ends", strings.ReplaceAll(fenced, "\n", "\r\n"), ""},
	{"inline code", "Use `<#if x>` or `<@root>`, not a\n- `<!-- x -->`", ""},
	{"fence in a list", "- ```\n  <!here>\n  ```", "- ```\n  &lt;!here>\n  ```"},
	{"tilde fence around a fence", "~~~\n```\n~~~\n<!here>\n```", "~~~\n```\n~~~\n&lt;!here>\n```"},
	{"backtick in an autolink", "<https://a`><!here>`", "<https://a`>&lt;!here>`"},
	{"backtick in a link", "[a](b`c)<!here> `", "[a](b`c)&lt;!here> `"},
	{"escaped backtick", "\\`<!here>`", "\\`&lt;!here>`"},
	{"backslash in code", "a `\\` <!here> `\\`", "a `\\` &lt;!here> `\\`"},
	{"odd backtick", "a ` b\n `<!here>`", "a ` b\n `&lt;!here>`"},
	{"code over table cells", "|a|b|\n|-|-|\n| `a|<!here>` |", "|a|b|\n|-|-|\n| `a|&lt;!here>` |"},
	{"HTML behind a carriage return", "x\r<pre>\n```\n</pre>\n<@U1>\n```", "x\r<pre>\n```\n</pre>\n&lt;@U1>\n```"},
	{"comment in the middle of a line", "a <!-- \n```\n--> <@U1>\n```", "a &lt;!-- \n```\n--> &lt;@U1>\n```"},
	{"comment in inline code", "a `<!-- `\n```\n--> <@U1>\n```", "a `&lt;!-- `\n```\n--> &lt;@U1>\n```"},
	{"front matter", "---\n```\n---\n<@U1>\n```", "---\n```\n---\n&lt;@U1>\n```"},
	{"escaped mention", `<\!here> <\\@U1>`, `&lt;\!here> &lt;\\@U1>`},
	{"open fence", "```\n<!here>", "```\n&lt;!here>"},
	{"fence inside HTML", "<pre>\n```\n</pre>\n<!here>\n```", "<pre>\n```\n</pre>\n&lt;!here>\n```"},
	{"double backticks", "a ``<!here>``", "a ``&lt;!here>``"},
	{"longer fence", "````\n```\n<!here>\n```", "````\n```\n&lt;!here>\n```"},
	{"link over two lines", "[a](\n `c)<!here> `", "[a](\n `c)&lt;!here> `"},
	{"a mention before fenced code", "a <@U1>\n" + fenced, "a &lt;@U1>\n" + fenced},
}

func TestMarkdown(t *testing.T) {
	for _, test := range markdownTexts {
		want := cmp.Or(test.want, test.in)
		if got := markdown(test.in); got != want {
			t.Errorf("%s: %q, expected %q", test.name, got, want)
		}
	}
}

func FuzzMarkdown(f *testing.F) {
	for _, test := range markdownTexts {
		f.Add(test.in)
	}
	f.Fuzz(func(t *testing.T, in string) {
		checkMarkdown(t, markdown(in))
		if back := strings.ReplaceAll(markdown(in), "&lt;", "<"); back != strings.ReplaceAll(in, "&lt;", "<") {
			t.Fatalf("%q became %q", in, back)
		}
	})
}

// checkMarkdown fails if a Markdown parser finds the start of a mention outside of code.
func checkMarkdown(t *testing.T, source string) {
	t.Helper()
	for _, parser := range []goldmark.Markdown{
		goldmark.New(), goldmark.New(goldmark.WithExtensions(extension.GFM, extension.Footnote)),
	} {
		bytesOf := []byte(source)
		inCode := make([]bool, len(bytesOf))
		mark := func(start, stop int) {
			for i := start; i < stop; i++ {
				inCode[i] = true
			}
		}
		tree := parser.Parser().Parse(text.NewReader(bytesOf))
		_ = ast.Walk(tree, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
			if !entering {
				return ast.WalkContinue, nil
			}
			switch node := node.(type) {
			case *ast.FencedCodeBlock, *ast.CodeBlock:
				for i := range node.Lines().Len() {
					line := node.Lines().At(i)
					mark(line.Start, line.Stop)
				}
			case *ast.CodeSpan:
				for child := node.FirstChild(); child != nil; child = child.NextSibling() {
					if words, ok := child.(*ast.Text); ok {
						mark(words.Segment.Start, words.Segment.Stop)
					}
				}
			}
			return ast.WalkContinue, nil
		})
		for i := range bytesOf {
			if !inCode[i] && bytesOf[i] == '<' && i+1 < len(bytesOf) && bytes.IndexByte([]byte("!@#"), bytesOf[i+1]) >= 0 {
				t.Fatalf("%q has a mention outside of code at byte %d", source, i)
			}
		}
	}
}
