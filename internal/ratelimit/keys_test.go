package ratelimit

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestEveryKeyCarriesTheNamespaceAsItsHashTag(t *testing.T) {
	k, err := newKeys("team-a")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{k.global(), k.inFlight(), k.sent(), k.pause(), k.probe(), k.category("errors"), k.category("{odd}"), k.category("}{"), k.category("")} {
		// Redis Cluster hashes what stands between the first opening brace and the first closing one after it.
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
	for _, name := range []string{
		k.global(), k.inFlight(), k.sent(), k.pause(), k.probe(),
		k.category("global"), k.category("inflight"), k.category("sent"), k.category("pause"), k.category("probe"), k.category(""), k.category("category:a"), k.category("a"),
	} {
		if seen[name] {
			t.Errorf("key %q stands for two things", name)
		}
		seen[name] = true
	}
}

func TestNamespaceMustNotMoveKeysToOtherSlots(t *testing.T) {
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

const lastSlot = " 1000000" // what the last slot of the costliest event appends

func TestMemberIsTheIDItselfWhereThatIsSafe(t *testing.T) {
	for id, plain := range map[string]bool{
		"a":                       true,
		"NOTIFY.17.1h2k3j4h5g6f":  true,
		"a~":                      true,
		strings.Repeat("x", 56):   true,
		strings.Repeat("x", 57):   false,
		"":                        false,
		"two words":               false,
		"e1 2":                    false, // would be the second slot of e1
		" ":                       false,
		"line\nbreak":             false,
		"nul\x00":                 false,
		"größe":                   false,
		"\xff":                    false,
		"~a":                      false, // would look like a hash
		strings.Repeat("é", 4000): false,
	} {
		got := member(id)
		if (got == id) != plain {
			t.Errorf("member of %q is %q", id, got)
		}
		if !plain && got[0] != hashedMark {
			t.Errorf("member of %q is %q, expected it marked as a hash", id, got)
		}
	}
}

func TestMemberOfAHashIsAnother(t *testing.T) {
	id := "an id with spaces"
	if hashed := member(id); member(hashed) == hashed {
		t.Errorf("an event with the id %q would pass for the event %q", hashed, id)
	}
}

func TestMembersFitTheCompactEncodingAndNeverCollide(t *testing.T) {
	id := rapid.OneOf(
		rapid.String(),
		rapid.StringN(0, 200, 4000),
		rapid.StringMatching(`~?[a-b ]{0,3}( [0-9])?`),
		rapid.StringMatching(`[a-b]{54,58}`),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.String(), member), // ids that look like members
	)
	rapid.Check(t, func(t *rapid.T) {
		a, b := id.Draw(t, "a"), id.Draw(t, "b")
		for _, m := range []string{member(a), member(b)} {
			if m == "" || len(m+lastSlot) > 64 || strings.ContainsAny(m, " \n") {
				t.Fatalf("member %q: expected 1 to %d bytes without white space", m, 64-len(lastSlot))
			}
		}
		if a != b && member(a) == member(b) {
			t.Fatalf("%q and %q are both %q", a, b, member(a))
		}
		if a == b && member(a) != member(b) {
			t.Fatalf("%q has two members", a)
		}
	})
}
