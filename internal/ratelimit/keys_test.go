package ratelimit

import (
	"strings"
	"testing"
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
