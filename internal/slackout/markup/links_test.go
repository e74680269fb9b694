package markup

import (
	"strings"
	"testing"
)

// goodLinks are links with the target that is shown.
var goodLinks = map[string]string{
	"https://example.org":                                    "example.org",
	"HTTPS://Example.ORG./Path?a=1&b=2#c":                    "example.org",
	"http://example.org:8080/x":                              "example.org:8080",
	"https://xn--bcher-kva.example/":                         "xn--bcher-kva.example",
	"http://127.0.0.1:3000":                                  "127.0.0.1:3000",
	"https://de.example/Straße?q=ü|{}":                       "de.example",
	"mailto:ops@example.org":                                 "ops@example.org",
	"mailto:Bereitschaft.Plattform+rot@betrieb.Example.org":  "Bereitschaft.Plattform+rot@betrieb.Example.org",
	"https://www.bank.example.account.login.evil.example/":   "….account.login.evil.example",
	"https://bank.example.account.login.evil.example:443/":   "….account.login.evil.example:443",
	"https://account-login.evil.example:65535":               "account-login.evil.example:65535",
	"https://example.org:/":                                  "example.org",
	"https://good.example?@evil.example":                     "good.example",
	"https://my_host/":                                       "my_host",
	"https://good.example/%5C@evil.example":                  "good.example",
	"https://good.example/redirect?to=https://evil.example/": "good.example",
}

// badLinks are what no link is made of.
var badLinks = []struct{ url, want string }{
	{"", "scheme"},
	{"//evil.example", "scheme"},
	{"javascript:alert(1)", "scheme"},
	{"ftp://example.org", "scheme"},
	{"https://bank.example@evil.example", "user"},
	{"https://@evil.example/", "user"},
	{`https://evil.example\@bank.example`, "backslash"},
	{"https://evil\t.example", "white space"},
	{"https://evil.example/\u202egpj", "white space"},
	{"https://evil.example/\xff", "white space"},
	{"https://evil.example|words", "not a URL"},
	{"https://evil.example>", "<, >"},
	{"https:evil.example", "plain host"},
	{"https:///evil.example", "plain host"},
	{"https://ｅｖｉｌ.example", "plain host"},
	{"https://evil。example", "plain host"},
	{"https://b%C3%A4nk.example", "plain host"},
	{"https://[::1]/", "plain host"},
	{"https://a..b/", "plain host"},
	{"https://example.org:x/", "not a URL"},
	{"https://evil.example:00000000000000000000000000000443/", "port"}, // 443 to a browser
	{"https://evil.example:0", "port"},
	{"https://evil.example:65536/", "port"},
	{"mailto:", "mail link"},
	{"mailto:evil%40evil.example%2C" + strings.Repeat("s", 28) + "@bank.example", "mail link"},
	{"mailto:a%2Cb@bank.example", "mail link"},
	{"mailto:" + strings.Repeat("s", 52) + "@bank.example", "65 characters, expected at most 64"},
	{"mailto:a@b.example,c@d.example", "mail link"},
	{"mailto:a@b.example?body=x", "mail link"},
	{"mailto:Bank <a@b.example>", "white space"},
	{"https://example.org/" + strings.Repeat("x", 3000), "bytes"},
}

func TestLinks(t *testing.T) {
	for raw, want := range goodLinks {
		l, err := parseLink(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if l.shown != want {
			t.Errorf("%s: goes to %q, expected %q", raw, l.shown, want)
		}
	}
	for _, test := range badLinks {
		if l, err := parseLink(test.url); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %+v, %v; expected an error about %s", test.url, l, err, test.want)
		}
	}
}

func TestWordsOfLinks(t *testing.T) {
	l, err := parseLink("https://evil.example/login")
	if err != nil {
		t.Fatal(err)
	}
	for words, want := range map[string]string{
		"": "evil.example", "evil.example": "evil.example", "Bank": "evil.example: Bank", " my\n\u00a0bank ": "evil.example: my bank",
		"evil.example: Bank": "evil.example: Bank", strings.Repeat("x", 80): "evil.example: " + strings.Repeat("x", 60) + "…",
	} {
		if got := l.label(words, 75); got != want {
			t.Errorf("label %q: %q, expected %q", words, got, want)
		}
	}
	for words, want := range map[string]string{
		"Bank": "Bank (evil.example)", "my\n\n\nbank": "my bank (evil.example)", "Bank (evil.example)": "Bank (evil.example)",
		"bank.example (bank.example)": "bank.example (bank.example) (evil.example)", "\u3164Bank\u2800\u115f\u1160\uffa0 \u2800x": "Bank x (evil.example)",
		"\u2800\u3164": "evil.example", strings.Repeat("x", 80): strings.Repeat("x", 59) + "… (evil.example)",
	} {
		if got := l.inline(words, 75); got != want {
			t.Errorf("inline %q: %q, expected %q", words, got, want)
		}
	}
}

func TestHosts(t *testing.T) {
	hosts, err := ParseHosts(" Grafana.example.org,*.corp.example , grafana.example.org")
	if err != nil || strings.Join(hosts, " ") != "*.corp.example grafana.example.org" {
		t.Errorf("%v, %v", hosts, err)
	}
	for host, want := range map[string]bool{
		"grafana.example.org": true, "x.grafana.example.org": false, "example.org": false, "grafana.example.org.evil.example": false,
		"corp.example": false, "a.corp.example": true, "a.b.corp.example": true, "evilcorp.example": false, "": false,
	} {
		if hosts.match(host) != want {
			t.Errorf("%s: %t, expected %t", host, !want, want)
		}
	}
	if hosts, err := ParseHosts(" "); err != nil || len(hosts) > 0 {
		t.Errorf("%v, %v, expected none", hosts, err)
	}
	for _, text := range []string{"*", "*.com", "https://example.org", "example.org:80", "example.org/x", "bücher.example", "a,,b", "a.*.example", ".example", "a b", "-a.example"} {
		if hosts, err := ParseHosts(text); err == nil || !strings.Contains(err.Error(), "expected") {
			t.Errorf("%s: %v, %v, expected an error", text, hosts, err)
		}
	}
}

// TestTextsWithLinks: links to the hosts keep their words, in both kinds of markup; all others are shown as
// they are.
func TestTextsWithLinks(t *testing.T) {
	for in, want := range map[string]string{
		"see <https://wiki.example/x?a&b|the & runbook>":      "see <https://wiki.example/x?a&amp;b|the &amp; runbook>",
		"<https://wiki.example/x>":                            "<https://wiki.example/x>",
		"<https://evil.example|x>":                            "&lt;https://evil.example|x&gt;",
		"<https://wiki.example@evil.example|x>":               "&lt;https://wiki.example@evil.example|x&gt;",
		"<https://wiki.example|<!here>>":                      "&lt;https://wiki.example|&lt;!here&gt;&gt;",
		"<mailto:a@wiki.example|x>":                           "&lt;mailto:a@wiki.example|x&gt;",
		"<!channel> <@U1> <!date^1^x^https://wiki.example|y>": "&lt;!channel&gt; &lt;@U1&gt; &lt;!date^1^x^https://wiki.example|y&gt;",
		"a\u202eb\u2066c\u2028d\x1be\u009bf שלום\u200f!":      "abc\ndef שלום\u200f!",
	} {
		if got := listed.Text(in, 3000); got != want {
			t.Errorf("%q: %q, expected %q", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"[runbook](https://wiki.example/x?a&b)":             "[runbook](https://wiki.example/x?a&amp;b)",
		"![graph](https://a.corp.example/g.png)":            "![graph](https://a.corp.example/g.png)",
		"[x](https://evil.example)":                         `\[x](https://evil.example)`,
		"[[x](https://wiki.example)](https://evil.example)": `\[[x](https://wiki.example)](https://evil.example)`,
		"[x](https://wiki.example \"t\")":                   `\[x](https://wiki.example "t")`,
		"[x][y]\n[y]: https://evil.example":                 "\\[x]\\[y]\n\\[y]: https://evil.example",
		"[<b>](https://wiki.example)":                       `\[&lt;b&gt;](https://wiki.example)`,
	} {
		if got := listed.markdown(in, 3000); got != want {
			t.Errorf("%q: %q, expected %q", in, got, want)
		}
	}
}
