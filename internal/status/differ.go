package status

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"notifier/internal/status/stats"
	"notifier/internal/term"
)

// Bounds of what is shown. There may be hundreds of replicas, each with its own settings, and anybody with
// access to Redis may have written names and values.
const (
	mostDiffering    = 20 // settings
	mostDifferent    = 4  // values of one setting
	mostNamed        = 3  // replicas with one value
	mostShownBytes   = 100
	mostErrorBytes   = 300
	mostWarningBytes = 1000
)

// Difference is one setting that is not the same in all replicas.
type Difference struct {
	Name   string  `json:"name"`   // of its variable
	Values []Value `json:"values"` // that of the settings of most replicas first
	More   int     `json:"more_values,omitempty"`
}

// Value is what some replicas have.
type Value struct {
	Value    string   `json:"value"` // of a list the entries that differ; (none): it is empty
	Replicas []string `json:"replicas"`
	More     int      `json:"more_replicas,omitempty"` // how many were left out
}

// others is the name of the Difference in the settings of which only a hash is known.
const others = "other settings"

// Deployment reports whether the setting makes its replicas another deployment: what they read is not the
// same.
func (d Difference) Deployment() bool { return slices.Contains(reads, d.Name) }

// Text is the difference for people: "LIMIT_CATEGORY is 10/30m in a, b and 5/30m in c".
func (d Difference) Text() string {
	parts := make([]string, len(d.Values))
	for i, value := range d.Values {
		parts[i] = who(value.Replicas, len(value.Replicas)+value.More)
		if d.Name != others {
			parts[i] = value.Value + " in " + parts[i]
		}
	}
	text := d.Name + " is "
	if d.Name == others {
		text = d.Name + " are not the same in "
	}
	text += strings.Join(parts, " and ")
	if d.More > 0 {
		text += " and " + term.Count(d.More, "more value")
	}
	return text
}

// who names replicas: "a, b", or "5 replicas (a, b, c, ...)".
func who(names []string, n int) string {
	var shown []string
	for _, name := range names[:min(len(names), mostNamed)] {
		shown = append(shown, printable(name))
	}
	text := strings.Join(shown, ", ")
	if n > len(shown) {
		return fmt.Sprintf("%d replicas (%s, ...)", n, text)
	}
	return text
}

func printable(text string) string { return term.Printable(cut(text, mostShownBytes)) }

// variant is what some replicas run with.
type variant struct {
	settings stats.Settings
	replicas []string // in alphabetical order
	newest   time.Time
}

// variantsOf groups replicas by their settings: those of most replicas first, ties go to the most recently
// started replica. Replicas that show no settings, as those of v0.1.0, are left out.
func variantsOf(replicas []stats.Replica) []*variant {
	found := map[string]*variant{}
	for _, replica := range replicas {
		if !shows(replica.Settings) {
			continue
		}
		id := fingerprint(replica.Settings)
		if found[id] == nil {
			found[id] = &variant{settings: replica.Settings}
		}
		found[id].replicas = append(found[id].replicas, replica.ID)
		if replica.Started.After(found[id].newest) {
			found[id].newest = replica.Started
		}
	}
	variants := slices.Collect(maps.Values(found))
	for _, v := range variants {
		slices.Sort(v.replicas)
	}
	slices.SortFunc(variants, func(a, b *variant) int {
		return cmp.Or(cmp.Compare(len(b.replicas), len(a.replicas)), b.newest.Compare(a.newest),
			cmp.Compare(fingerprint(a.settings), fingerprint(b.settings)))
	})
	return variants
}

// lastKnown are the replicas whose settings count. Silent ones must not outvote their successors; where all
// are silent, as while Redis stores no heartbeats, their settings are the best that is known.
func lastKnown(replicas []stats.Replica) []stats.Replica {
	if running := stats.Running(replicas); len(running) > 0 {
		return running
	}
	return replicas
}

// shows reports whether a heartbeat has settings as a worker writes them.
func shows(settings stats.Settings) bool {
	for name, text := range settings.Values {
		if len(name) > mostShownBytes || len(text) > mostValueBytes {
			return false
		}
	}
	return !settings.IsZero() && len(settings.Values) <= mostValues && len(settings.Others) <= mostShownBytes
}

// fingerprint is the same for the same settings.
func fingerprint(settings stats.Settings) string {
	text, _ := json.Marshal(settings) // strings cannot fail, and maps are sorted
	return hashOf(string(text))
}

// compare returns what differs between the variants: first what makes deployments different, unless they are
// different on purpose.
func compare(variants []*variant) []Difference {
	differences := []Difference{}
	add := func(name string, of func(stats.Settings) string) {
		difference, differs := compareOne(name, variants, of)
		if differs && len(differences) < mostDiffering && !(difference.Deployment() && onPurpose(variants)) {
			differences = append(differences, difference)
		}
	}
	for _, name := range namesIn(variants) {
		add(name, func(settings stats.Settings) string { return settings.Values[name] })
	}
	add(others, func(settings stats.Settings) string { return settings.Others })
	return differences
}

// namesIn are the names of the values: those that this release knows, in their order, and then those of
// others.
func namesIn(variants []*variant) []string {
	var names []string
	for _, setting := range shownSettings {
		names = append(names, setting.name)
	}
	known := len(names)
	for _, v := range variants {
		for name := range v.settings.Values {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names[known:])
	return names
}

// compareOne returns what the variants have of one setting.
func compareOne(
	name string, variants []*variant, of func(stats.Settings) string,
) (d Difference, differs bool) {
	replicas := map[string][]string{}
	var texts []string
	for _, v := range variants {
		text := of(v.settings)
		if _, found := replicas[text]; !found {
			texts = append(texts, text)
		}
		replicas[text] = append(replicas[text], v.replicas...)
	}
	if len(texts) < 2 {
		return Difference{}, false
	}
	common := commonEntries(texts)
	d = Difference{Name: printable(name), More: len(texts) - min(len(texts), mostDifferent)}
	for _, text := range texts[:min(len(texts), mostDifferent)] {
		names := replicas[text]
		value := Value{Value: withoutCommon(text, common), More: len(names) - min(len(names), mostNamed)}
		for _, name := range names[:min(len(names), mostNamed)] {
			value.Replicas = append(value.Replicas, printable(name))
		}
		d.Values = append(d.Values, value)
	}
	return d, true
}

// commonEntries are the entries of a list that all of the texts have.
func commonEntries(texts []string) map[string]bool {
	counts := map[string]int{}
	for _, text := range texts {
		for entry := range strings.SplitSeq(text, ",") {
			counts[entry]++
		}
	}
	common := map[string]bool{}
	for entry, n := range counts {
		common[entry] = n >= len(texts)
	}
	return common
}

// withoutCommon is a value without the entries that are the same everywhere: in a long list they hide the one
// that differs.
func withoutCommon(text string, common map[string]bool) string {
	entries := slices.DeleteFunc(strings.Split(text, ","), func(entry string) bool { return common[entry] })
	return cmp.Or(printable(strings.Join(entries, ",")), "(none)")
}

// onPurpose reports whether the variants are deployments that share a namespace on purpose, as those do that
// have outgrown one stream: no two of them read the same stream or subject, and all post to the same default
// channel. Two teams that share a namespace by mistake have their own channels. That of a webhook is not
// known, so it counts as a mistake, too.
func onPurpose(variants []*variant) bool {
	byStream, bySubject := map[string]string{}, map[string]string{}
	for _, v := range variants {
		values := v.settings.Values
		all := values[stream] + " " + values[subject] + " " + values[consumer]
		byStream[values[stream]] = cmp.Or(byStream[values[stream]], all)
		bySubject[values[subject]] = cmp.Or(bySubject[values[subject]], all)
		if values[channel] == "" || values[channel] != variants[0].settings.Values[channel] ||
			byStream[values[stream]] != all || bySubject[values[subject]] != all {
			return false
		}
	}
	return len(byStream) > 1
}

// different is how many different settings the variants have. What deployments read that share a namespace on
// purpose does not count.
func different(variants []*variant) int {
	if !onPurpose(variants) {
		return len(variants)
	}
	rests := map[string]bool{}
	for _, v := range variants {
		rest := stats.Settings{Values: maps.Clone(v.settings.Values), Others: v.settings.Others}
		for _, name := range reads {
			delete(rest.Values, name)
		}
		rests[fingerprint(rest)] = true
	}
	return len(rests)
}

// warningsOf are the differences as sentences: first deployments that share a namespace by mistake, then
// replicas that differ.
func warningsOf(differences []Difference) []string {
	warnings := []string{}
	for _, kind := range []struct {
		deployment bool
		begin, end string
	}{
		{
			true, "Two deployments share this namespace: ",
			". They share limits, too; give each a REDIS_NAMESPACE of its own.",
		},
		{false, "Replicas run with different settings: ", "."},
	} {
		var texts []string
		for _, difference := range differences {
			if difference.Deployment() == kind.deployment {
				texts = append(texts, difference.Text())
			}
		}
		if len(texts) > 0 {
			warnings = append(warnings, kind.begin+cut(strings.Join(texts, "; "), mostWarningBytes)+kind.end)
		}
	}
	return warnings
}
