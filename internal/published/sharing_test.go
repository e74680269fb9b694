package published_test

import (
	"testing"

	"notifier/internal/event"
	"notifier/internal/published"
	"notifier/internal/testkit"
)

// TestSharingOnPurpose: deployments share a namespace on purpose when they read nothing in common and post to the same channel.
func TestSharingOnPurpose(t *testing.T) {
	one := settings(t)
	other := func(change func(*published.Settings)) published.Settings {
		s := settings(t)
		var err error
		s.Stream = "MORE"
		s.Subject, err = event.ParsePattern("more.>")
		testkit.Check(t, err)
		change(&s)
		return s
	}
	same := func(*published.Settings) {}
	for name, test := range map[string]struct {
		second   published.Settings
		sharing  bool
		distinct int
		warnings int
	}{
		"another stream and other subjects": {other(same), true, 1, 0},
		"other limits, too":                 {other(func(s *published.Settings) { s.Limits.Category = testkit.Rules("1/1h", "5/30m", "").Category }), true, 2, 1},
		"another consumer, too":             {other(func(s *published.Settings) { s.Consumer = "more" }), true, 1, 0},
		"another channel":                   {other(func(s *published.Settings) { s.Channel = "#others" }), false, 2, 2},
		"the same stream":                   {other(func(s *published.Settings) { s.Stream = one.Stream }), false, 2, 1},
		"the same subjects":                 {other(func(s *published.Settings) { s.Subject = one.Subject }), false, 2, 1},
		"the same settings":                 {one, false, 1, 0},
	} {
		variants := filled(t, map[string]published.Settings{"a": one, "b": test.second})
		sharing, distinct := published.Sharing(variants), published.Distinct(variants)
		warnings := published.Warnings(variants, published.Compare(variants))
		if sharing != test.sharing || distinct != test.distinct || len(warnings) != test.warnings {
			t.Errorf("%s: %t, %d different settings, warnings %q; expected %t, %d and %d of them", name, sharing, distinct, warnings, test.sharing, test.distinct, test.warnings)
		}
	}

	webhook := func(s *published.Settings) { s.Channel = "" }
	first, second := settings(t), other(webhook)
	webhook(&first)
	if published.Sharing(filled(t, map[string]published.Settings{"a": first, "b": second})) {
		t.Error("two deployments with webhooks share on purpose, expected that this is not known")
	}
	if published.Sharing(filled(t, map[string]published.Settings{"a": one, "b": other(same)}, published.Replica{ID: "old"})) {
		t.Error("beside a replica that publishes nothing it is on purpose, expected that this is not known")
	}
}
