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
		k.global(), k.meta(), k.inFlight(), k.sent(), k.categories(), k.pauses(), k.probes(), k.pace("C1"),
	}
	for _, log := range []string{k.category("errors"), k.category("{odd}"), k.category("}{"), k.category(""), k.group("}")} {
		names = append(names, k.bothForms(log)...)
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
	for _, log := range []string{
		k.global(), k.category("global"), k.category("inflight"), k.category("sent"), k.category("categories"), k.category("pause"),
		k.category(""), k.category("category:a"), k.category("a"), k.category("group:a"), k.category("buckets:a"), k.group("a"),
	} {
		names = append(names, k.bothForms(log)...)
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
