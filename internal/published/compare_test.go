package published_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/published"
	"notifier/internal/testkit"
)

var start = time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)

// with are settings with another limit of a category.
func with(t *testing.T, category string) published.Settings {
	s := settings(t)
	s.Limits.Category = testkit.Rules("1/1h", category, "").Category
	return s
}

// filled are the variants of replicas, which have the settings, as they are read from Redis.
func filled(t *testing.T, replicas map[string]published.Settings, further ...published.Replica) []*published.Variant {
	t.Helper()
	documents := map[string]string{}
	list := further
	for id, s := range replicas {
		text, fingerprint := s.Encode()
		documents[fingerprint] = text
		list = append(list, published.Replica{ID: id, Fingerprint: fingerprint, Started: start})
	}
	variants := published.Variants(list)
	published.Fill(variants, documents)
	return variants
}

// TestWhoseSettingsCount: those of most replicas, of equals those of the newest, and never nobody's while there are any.
func TestWhoseSettingsCount(t *testing.T) {
	replica := func(id, fingerprint string, started int) published.Replica {
		return published.Replica{ID: id, Fingerprint: fingerprint, Started: start.Add(time.Duration(started) * time.Minute)}
	}
	for name, test := range map[string]struct {
		replicas []published.Replica
		want     []string
	}{
		"none":              {nil, nil},
		"most":              {[]published.Replica{replica("a", "x", 9), replica("b", "y", 0), replica("c", "y", 0)}, []string{"y", "x"}},
		"newest of equals":  {[]published.Replica{replica("a", "x", 0), replica("b", "y", 1), replica("c", "z", 0)}, []string{"y", "x", "z"}},
		"newest of several": {[]published.Replica{replica("a", "x", 0), replica("b", "x", 2), replica("c", "y", 1), replica("d", "y", 1)}, []string{"x", "y"}},
		"none published":    {[]published.Replica{replica("a", "", 9), replica("b", "", 9), replica("c", "y", 0)}, []string{"y", ""}},
	} {
		var got []string
		for _, variant := range published.Variants(test.replicas) {
			got = append(got, variant.Fingerprint)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, expected %q", name, got, test.want)
		}
	}
}

func TestDifferencesAreNamed(t *testing.T) {
	other := with(t, "5/30m")
	other.Stream = "TEST"
	variants := filled(t, map[string]published.Settings{"a": settings(t), "b": settings(t), "c": other, "d": with(t, "7/1h")})
	differences := published.Compare(variants)
	want := []published.Difference{
		{Name: "NATS_STREAM", Values: []published.Value{{Value: "NOTIFY", Replicas: []string{"a", "b", "d"}}, {Value: "TEST", Replicas: []string{"c"}}}},
		{Name: "LIMIT_CATEGORY", Values: []published.Value{{Value: "10/30m", Replicas: []string{"a", "b"}}, differences[1].Values[1], differences[1].Values[2]}},
	}
	if diff := cmp.Diff(want, differences); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	warnings := published.Warnings(variants, differences)
	if len(warnings) != 2 || warnings[0] != "Two deployments share this namespace: NATS_STREAM is NOTIFY in a, b, d and TEST in c. They share limits, too; give each a REDIS_NAMESPACE of its own." ||
		!strings.HasPrefix(warnings[1], "Replicas run with different settings: LIMIT_CATEGORY is 10/30m in a, b and ") || !strings.Contains(warnings[1], "7/1h in d") {
		t.Errorf("%q", warnings)
	}
	if variants := filled(t, map[string]published.Settings{"a": other, "b": other}); len(published.Warnings(variants, published.Compare(variants))) != 0 {
		t.Error("replicas with the same settings have a warning")
	}
}

// TestOnlyWhatDiffersOfAListIsShown: a long list hides the one entry that is not the same.
func TestOnlyWhatDiffersOfAListIsShown(t *testing.T) {
	list := func(errors string) published.Settings {
		s := settings(t)
		var entries []string
		for i := range 100 {
			entries = append(entries, fmt.Sprintf("c%d=1/1h", i))
		}
		s.Limits.Overrides = testkit.Rules("1/1h", "1/1h", strings.Join(entries, ",")+errors).Overrides
		return s
	}
	for _, test := range []struct{ a, b, wantA, wantB string }{
		{",errors=1/1h", ",errors=2/1h", "errors=1/1h", "errors=2/1h"},
		{",errors=1/1h", "", "errors=1/1h", "(none)"},
	} {
		differences := published.Compare([]*published.Variant{published.Own("a", list(test.a)), published.Own("b", list(test.b))})
		if len(differences) != 1 || differences[0].Values[0].Value != test.wantA || differences[0].Values[1].Value != test.wantB {
			t.Errorf("%+v, expected %s and %s", differences, test.wantA, test.wantB)
		}
	}
}

// TestSettingsThatAreNotKnown: replicas of another version, and documents that cannot be read, are named.
func TestSettingsThatAreNotKnown(t *testing.T) {
	old, damaged := published.Replica{ID: "old"}, published.Replica{ID: "bad\x1b[2J", Fingerprint: "f"}
	variants := filled(t, map[string]published.Settings{"a": settings(t)}, old, damaged)
	warnings := published.Warnings(variants, published.Compare(variants))
	want := []string{
		"The settings of bad?[2J are not known: they are not in Redis.",
		"The settings of old are not known: they publish none, as versions before this one do.",
	}
	slices.Sort(warnings)
	if diff := cmp.Diff(want, warnings); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestManyReplicasAreBounded: 200 replicas, each with settings of its own and a name as long as may be.
func TestManyReplicasAreBounded(t *testing.T) {
	replicas := map[string]published.Settings{}
	for i := range 200 {
		replicas[strings.Repeat("\u202e", 1000)+fmt.Sprint(i)] = with(t, fmt.Sprintf("%d/1h", i+1))
	}
	variants := filled(t, replicas)
	if n := len(published.Fingerprints(variants)); n != published.MaxVariants {
		t.Errorf("%d documents are read, expected %d", n, published.MaxVariants)
	}
	differences := published.Compare(variants)
	if len(differences) != 1 || len(differences[0].Values) != 4 || differences[0].More != published.MaxVariants-4 {
		t.Fatalf("%+v", differences)
	}
	warnings := strings.Join(published.Warnings(variants, differences), "\n")
	if len(warnings) > 5000 || strings.Contains(warnings, "\u202e") {
		t.Errorf("%d bytes: %.300q", len(warnings), warnings)
	}
}

// TestUnknownSettingsAreNamedWhateverElseDiffers: replicas that publish nothing are the last of the variants, and those whose
// documents are not read come late, too.
func TestUnknownSettingsAreNamedWhateverElseDiffers(t *testing.T) {
	replicas := map[string]published.Settings{}
	for i := range published.MaxVariants + 25 {
		replicas[fmt.Sprintf("r%02d", i)] = with(t, fmt.Sprintf("%d/1h", i+1))
	}
	variants := filled(t, replicas, published.Replica{ID: "old"})
	warnings := strings.Join(published.Warnings(variants, published.Compare(variants)), "\n")
	for _, want := range []string{"The settings of old are not known: they publish none", "The settings of 25 replicas (", "are not known: there are too many different ones to read all."} {
		if !strings.Contains(warnings, want) {
			t.Errorf("%s\nexpected %q", warnings, want)
		}
	}

	var further []published.Replica
	for i := range 9 {
		further = append(further, published.Replica{ID: fmt.Sprintf("f%d", i), Fingerprint: fmt.Sprintf("%016d", i)})
	}
	variants = published.Variants(further)
	documents := map[string]string{}
	for i, replica := range further {
		documents[replica.Fingerprint] = strings.Repeat("x", i+1)
	}
	published.Fill(variants, documents)
	got := published.Unknown(variants)
	if len(got) != 5 || got[4] != "The settings of 5 more replicas are not known either." {
		t.Errorf("%q", got)
	}
}

// TestOwnSettingsAreAlwaysNamed: among many replicas with the same value, and among many values.
func TestOwnSettingsAreAlwaysNamed(t *testing.T) {
	text := func(own string, replicas ...string) string {
		t.Helper()
		settings := map[string]published.Settings{}
		for i, limit := range replicas {
			settings[fmt.Sprintf("a%d", i)] = with(t, limit)
		}
		differences := published.Compare(append(filled(t, settings), published.Own("this configuration", with(t, own))))
		if len(differences) != 1 {
			t.Fatalf("%+v", differences)
		}
		return differences[0].Text()
	}
	if got, want := text("1/1h", "1/1h", "1/1h", "1/1h", "1/1h", "2/1h"), "LIMIT_CATEGORY is 1/1h in 4 replicas (a0, a1, a2, ...), this configuration and 2/1h in a4"; got != want {
		t.Errorf("%s, expected %s", got, want)
	}
	if got, want := text("9/1h", "1/1h", "2/1h", "3/1h", "4/1h"), " and 9/1h in this configuration and 1 more value"; !strings.HasSuffix(got, want) {
		t.Errorf("%s, expected %s", got, want)
	}
}
