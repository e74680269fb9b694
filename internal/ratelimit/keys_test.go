package ratelimit

import (
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

func TestNamespaceIsTheHashTag(t *testing.T) {
	k, err := newKeys("team-a")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{
		k.meta(), k.inFlight(), k.sent(), k.categories(), k.pauses(), k.probes(), k.pace("C1"),
	}
	for _, scope := range []scope{
		globalScope, categoryScope("errors"), categoryScope("{odd}"), categoryScope("}{"), categoryScope(""), groupScope("}"),
	} {
		names = append(names, k.scope(scope)...)
	}
	for _, name := range names {
		// Redis Cluster hashes the text between the first opening brace and the next closing one.
		_, rest, _ := strings.Cut(name, "{")
		tag, _, _ := strings.Cut(rest, "}")
		if !strings.HasPrefix(name, "{team-a}:") || tag != "team-a" {
			t.Errorf("key %q has the hash tag %q, expected the namespace", name, tag)
		}
	}
}

func TestNoTwoThingsShareAKey(t *testing.T) {
	k := keys{prefix: "{n}:"}
	seen := map[string]bool{}
	names := []string{k.meta(), k.inFlight(), k.sent(), k.categories(), k.pauses(), k.probes(), k.pace("C1")}
	for _, scope := range []scope{
		globalScope, categoryScope("global"), categoryScope("inflight"), categoryScope("sent"), categoryScope("categories"), categoryScope("pause"),
		categoryScope(""), categoryScope("category:a"), categoryScope("a"), categoryScope("group:a"), categoryScope("buckets:a"), groupScope("a"),
	} {
		names = append(names, k.scope(scope)...)
	}
	for _, name := range names {
		if seen[name] {
			t.Errorf("key %q stands for two things", name)
		}
		seen[name] = true
	}
}

func TestNamespaceHasNoBraces(t *testing.T) {
	for _, bad := range []string{"", "{", "}", "{a}", "a{b", "a b", "a\tb", "a\nb", "a\r"} {
		if _, err := newKeys(bad); err == nil || !strings.Contains(err.Error(), "expected a name without braces and whitespace") {
			t.Errorf("namespace %q: %v", bad, err)
		}
	}
	for _, good := range []string{"notifier", "team/a:b", "ü"} {
		if _, err := newKeys(good); err != nil {
			t.Errorf("namespace %q: %v", good, err)
		}
	}
}

const lastSlot = " 1000000" // with it, the longest plain member has 64 bytes

func member(category, source, id string) string {
	return Request{Category: category, Source: source, ID: id}.member()
}

func TestMemberShowsCategoryAndIDOrAHash(t *testing.T) {
	for _, test := range []struct{ category, source, id, want string }{ // an empty want stands for a hash
		{"errors", "", "a", "errors:a"},
		{"errors", "", "NOTIFY.17.1h2k3j4h5g6f", "errors:NOTIFY.17.1h2k3j4h5g6f"},
		{"errors.db", "", "a~:b", "errors.db:a~:b"},
		{"errors", "/ci", "a", "errors~4aZY8rpa:a"},
		{"errors", "", strings.Repeat("x", 49), "errors:" + strings.Repeat("x", 49)},
		{"errors", "", strings.Repeat("x", 50), ""},
		{"errors", "/ci", strings.Repeat("x", 41), ""},
		{strings.Repeat("x", 128), "", "a", ""},
		{"errors", "", "two words", ""},
		{"errors", "", "a 2", ""}, // would read as the second slot of a
		{"errors", "", "line\nbreak", ""},
		{"errors", "", "nul\x00", ""},
		{"errors", "", "größe", ""},
		{"errors", "", "\xff", ""},
		{"a:b", "", "c", ""}, // would read as the id "b:c" of category a
		{"a~b", "", "c", ""}, // would read as category a with a source
		{"größe", "", "a", ""},
		{"", "", "a", ""},
		{"", "/ci", "a", ""}, // would begin like a hash
	} {
		got := member(test.category, test.source, test.id)
		category, id, plain := readMember(got)
		switch {
		case test.want == "" && (got[0] != memberMark || plain):
			t.Errorf("member of %+v is %q (read as %q, %q), expected a hash", test, got, category, id)
		case test.want != "" && (got != test.want || !plain || category != test.category || id != test.id):
			t.Errorf("member of %+v is %q (read as %q, %q)", test, got, category, id)
		}
	}
}

// parts generates categories, sources and ids. Many resemble a part of a member.
func parts() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(),
		rapid.StringN(0, 200, 4000),
		rapid.StringMatching(`~?[a-b: ~]{0,3}( [0-9])?`),
		rapid.StringMatching(`[a-b]{44,58}`),
		rapid.SampledFrom([]string{"", "a", "a:a", "a~a"}),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.String(), func(s string) string { return member("a", "", s) }), // like members
		rapid.Map(rapid.String(), func(s string) string { return member("a", s, "b") }),
	)
}

func TestMembersNeverCollide(t *testing.T) {
	part := parts()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) Request {
			return Request{Category: part.Draw(t, name+"'s category"), Source: part.Draw(t, name+"'s source"), ID: part.Draw(t, name+"'s id")}
		}
		a, b := draw("a"), draw("b")
		switch rapid.IntRange(0, 3).Draw(t, "alike") { // by chance, parts are hardly ever equal
		case 1:
			b.Category, b.Source = a.Category, a.Source
		case 2:
			b.Category, b.ID = a.Category, a.ID
		case 3:
			b.Source, b.ID = a.Source, a.ID
		}
		for _, m := range []string{a.member(), b.member()} {
			if m == "" || len(m+lastSlot) > 64 || strings.ContainsAny(m, " \n") {
				t.Fatalf("member %q: expected 1 to %d bytes without white space", m, 64-len(lastSlot))
			}
		}
		if same := a.member() == b.member(); same != (a == b) {
			t.Fatalf("%+v is %q, %+v is %q", a, a.member(), b, b.member())
		}
	})
}

// The name of a source in the index yields the same members as the source.
func TestSourceNamesAreUnique(t *testing.T) {
	longest := strings.Repeat("x", maxSource)
	if sourceName(longest) != longest || sourceName(longest+"x") == longest+"x" {
		t.Fatalf("expected that a source of up to %d bytes is its own name, and no longer one", maxSource)
	}
	part := parts()
	rapid.Check(t, func(t *rapid.T) {
		a, b := part.Draw(t, "a"), part.Draw(t, "b")
		name := sourceName(a)
		if len(name) > maxSource || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("%q is named %q", a, name)
		}
		if name != a && sourceName(name) == name {
			t.Fatalf("the source %q would pass for %q", name, a)
		}
		if (a == b) != (name == sourceName(b)) || (a == "") != (name == "") {
			t.Fatalf("%q and %q are named %q and %q", a, b, name, sourceName(b))
		}
		if got, want := newOrigin("c", name).member("e"), member("c", a, "e"); got != want {
			t.Fatalf("with the name of %q: %q, expected %q", a, got, want)
		}
	})
}

// The same text, divided differently into category, source and id, is another event.
func TestMemberKeepsItsPartsApart(t *testing.T) {
	long := strings.Repeat("x", maxPlainMember) // too long for a plain member
	seen := map[string]Request{}
	for _, request := range []Request{
		{Category: "errors", Source: "/ci", ID: "-" + long},
		{Category: "errorz", Source: "/ci", ID: "-" + long},
		{Category: "errors", Source: "/ci-", ID: long},
		{Category: "errors/", Source: "ci-", ID: long},
		{Category: "errors/ci-", Source: "", ID: long},
		{Category: "", Source: "errors/ci-", ID: long},
		{Category: "", Source: "", ID: "errors/ci-" + long},
	} {
		got := request.member()
		if got[0] != memberMark {
			t.Errorf("member of %+v is %q, expected a hash", request, got)
		}
		if other, same := seen[got]; same {
			t.Errorf("%+v and %+v are both %q", other, request, got)
		}
		seen[got] = request
	}
}

// readMember returns the category and the id of a plain member. For a hash, ok is false.
func readMember(member string) (category, id string, ok bool) {
	before, id, found := strings.Cut(member, string(memberColon))
	category, _, _ = strings.Cut(before, string(memberMark))
	return category, id, found && category != ""
}
