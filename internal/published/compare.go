package published

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"notifier/internal/term"
)

// Bounds of what is read and shown. There may be hundreds of replicas, each with settings of its own, and names and values are
// what anybody may have written.
const (
	MaxVariants      = 16 // whose documents are read
	mostValues       = 4  // of one setting
	mostNamed        = 3  // replicas with one value
	mostDiffering    = 20 // settings
	mostValueBytes   = 100
	mostWarningBytes = 1000
)

// Replica is a running replica.
type Replica struct {
	ID          string
	Fingerprint string // of its settings; empty: it publishes none
	Started     time.Time
}

// Variant is what some replicas run with. The one of most replicas is the first.
type Variant struct {
	Fingerprint string
	Replicas    []string // in alphabetical order

	document Document
	err      error // why the document cannot be read, or nil
	newest   time.Time
	own      bool // see Own
}

// Variants groups replicas by their settings: those that most run with first, of equals those of the replica that started last.
// Replicas that publish nothing are the last ones.
func Variants(replicas []Replica) []*Variant {
	found := map[string]*Variant{}
	for _, replica := range replicas {
		variant := found[replica.Fingerprint]
		if variant == nil {
			variant = &Variant{Fingerprint: replica.Fingerprint}
			found[replica.Fingerprint] = variant
		}
		variant.Replicas = append(variant.Replicas, replica.ID)
		if replica.Started.After(variant.newest) {
			variant.newest = replica.Started
		}
	}
	variants := slices.Collect(maps.Values(found))
	for _, variant := range variants {
		slices.Sort(variant.Replicas)
	}
	slices.SortFunc(variants, func(a, b *Variant) int {
		return cmp.Or(compareBool(a.Fingerprint == "", b.Fingerprint == ""), cmp.Compare(len(b.Replicas), len(a.Replicas)),
			b.newest.Compare(a.newest), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	return variants
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// Fingerprints are those whose documents are worth reading, at most MaxVariants.
func Fingerprints(variants []*Variant) []string {
	var fingerprints []string
	for _, variant := range variants[:min(len(variants), MaxVariants)] {
		if variant.Fingerprint != "" {
			fingerprints = append(fingerprints, variant.Fingerprint)
		}
	}
	return fingerprints
}

// Fill gives the variants their documents, by fingerprint.
func Fill(variants []*Variant, documents map[string]string) {
	for i, variant := range variants {
		switch {
		case variant.Fingerprint == "":
			variant.err = errPublishNothing
		case i >= MaxVariants:
			variant.err = errTooMany
		default:
			variant.document, variant.err = ReadDocument(documents[variant.Fingerprint], variant.Fingerprint)
		}
	}
}

var (
	errPublishNothing = fmt.Errorf("they publish none, as versions before this one do")
	errTooMany        = fmt.Errorf("there are too many different ones to read all")
)

// Own is the variant of settings that are compared with those of replicas, under a name that no replica has. They are named
// wherever they differ, however many others do.
func Own(name string, s Settings) *Variant {
	_, fingerprint := s.Encode()
	return &Variant{Fingerprint: fingerprint, Replicas: []string{name}, document: s.document(), own: true}
}

// Decode returns the settings of the variant; see Document.Decode. Fill comes first.
func (v *Variant) Decode() (Settings, error) {
	if v.err != nil {
		return Settings{}, v.err
	}
	return v.document.Decode()
}

// Known reports whether the variant's document could be read.
func (v *Variant) Known() bool { return v.err == nil }

// Who names the replicas of the variant: "a, b", or "5 replicas (a, b, c, ...)".
func (v *Variant) Who() string { return who(v.Replicas, len(v.Replicas)) }

// Difference is one setting that is not the same in all variants.
type Difference struct {
	Name   string  `json:"name"`   // of its variable
	Values []Value `json:"values"` // that of most replicas first
	More   int     `json:"more_values,omitempty"`
}

// Value is what some replicas have.
type Value struct {
	Value    string   `json:"value"` // of a list the entries that are not the same everywhere; (none): it is empty
	Replicas []string `json:"replicas"`
	More     int      `json:"more_replicas,omitempty"` // how many were left out
	Own      string   `json:"own,omitempty"`           // what else has it: the name in Own
}

// Deployment reports whether the setting makes its replicas another deployment: what they read is not the same.
func (d Difference) Deployment() bool { return slices.Contains(deployment, d.Name) }

// Text is the difference for people: "LIMIT_CATEGORY is 10/30m in a, b and 5/30m in c".
func (d Difference) Text() string {
	parts := make([]string, len(d.Values))
	for i, value := range d.Values {
		parts[i] = value.Value + " in " + value.who()
	}
	text := d.Name + " is " + strings.Join(parts, " and ")
	if d.More > 0 {
		text += fmt.Sprintf(" and %s", term.Count(d.More, "more value"))
	}
	return text
}

func (v Value) who() string {
	var names []string
	if len(v.Replicas) > 0 {
		names = append(names, who(v.Replicas, len(v.Replicas)+v.More))
	}
	if v.Own != "" {
		names = append(names, v.Own)
	}
	return strings.Join(names, ", ")
}

func who(names []string, n int) string {
	shown := make([]string, min(len(names), mostNamed))
	for i := range shown {
		shown[i] = term.Printable(cut(names[i], mostValueBytes))
	}
	text := strings.Join(shown, ", ")
	if n > len(shown) {
		return fmt.Sprintf("%d replicas (%s, ...)", n, text)
	}
	return text
}

// Compare returns what differs between the variants whose documents are known: first what makes deployments different.
func Compare(variants []*Variant) []Difference {
	variants = slices.DeleteFunc(slices.Clone(variants), func(v *Variant) bool { return v.err != nil })
	differences := []Difference{}
	for _, name := range namesIn(variants) {
		if difference, differs := compareOne(name, variants); differs && len(differences) < mostDiffering {
			differences = append(differences, difference)
		}
	}
	return differences
}

// namesIn are the settings of the variants: those that are known in their order, and then others.
func namesIn(variants []*Variant) []string {
	var names []string
	known := map[string]bool{}
	for _, setting := range all {
		names, known[setting.name] = append(names, setting.name), true
	}
	others := map[string]bool{}
	for _, variant := range variants {
		for _, values := range []map[string]string{variant.document.Settings, variant.document.LeftOut} {
			for name := range values {
				others[name] = !known[name]
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		if others[name] {
			names = append(names, name)
		}
	}
	return names
}

// holders are who has one value of a setting.
type holders struct {
	text     string
	replicas []string
	own      string
}

func (h *holders) count() int { return len(h.replicas) + min(len(h.own), 1) }

// compareOne returns what the variants have of one setting. Their order, most replicas first, becomes that of the values.
func compareOne(name string, variants []*Variant) (difference Difference, differs bool) {
	var values []*holders
	var texts []string
	for _, variant := range variants {
		text, found := variant.document.value(name)
		if !found {
			text = "not published"
		}
		at := slices.Index(texts, text)
		if at < 0 {
			at = len(values)
			texts, values = append(texts, text), append(values, &holders{text: text})
		}
		if variant.own {
			values[at].own = strings.Join(variant.Replicas, ", ")
		} else {
			values[at].replicas = append(values[at].replicas, variant.Replicas...)
		}
	}
	if len(values) < 2 {
		return Difference{}, false
	}
	common := commonEntries(texts)
	slices.SortStableFunc(values, func(a, b *holders) int { return cmp.Compare(b.count(), a.count()) })
	if own := slices.IndexFunc(values, func(h *holders) bool { return h.own != "" }); own >= mostValues {
		values[mostValues-1], values[own] = values[own], values[mostValues-1]
	}
	difference.Name = term.Printable(cut(name, mostValueBytes))
	difference.More = len(values) - min(len(values), mostValues)
	for _, h := range values[:min(len(values), mostValues)] {
		slices.Sort(h.replicas)
		value := Value{Value: shown(h.text, common), More: len(h.replicas) - min(len(h.replicas), mostNamed), Own: h.own}
		for _, name := range h.replicas[:min(len(h.replicas), mostNamed)] {
			value.Replicas = append(value.Replicas, term.Printable(cut(name, mostValueBytes)))
		}
		difference.Values = append(difference.Values, value)
	}
	return difference, true
}

// commonEntries are the entries of a list that all of the texts have.
func commonEntries(texts []string) map[string]bool {
	counts := map[string]int{}
	for _, text := range texts {
		for _, entry := range strings.Split(text, ",") {
			counts[entry]++
		}
	}
	common := map[string]bool{}
	for entry, n := range counts {
		common[entry] = n >= len(texts)
	}
	return common
}

// shown is a value without the entries that are the same everywhere, cut.
func shown(text string, common map[string]bool) string {
	entries := slices.DeleteFunc(strings.Split(text, ","), func(entry string) bool { return common[entry] })
	return term.Printable(cmp.Or(cut(strings.Join(entries, ","), mostValueBytes), "(none)"))
}

// Warnings are the differences as sentences for people: deployments that share a namespace by mistake first, then replicas that differ,
// then replicas of whose settings nothing is known. None: all run with the same settings, but for what is on purpose (see Sharing).
func Warnings(variants []*Variant, differences []Difference) []string {
	warnings := []string{}
	differences = WorthSaying(variants, differences)
	for _, kind := range []struct {
		deployment bool
		begin, end string
	}{
		{true, "Two deployments share this namespace: ", ". They share limits, too; give each a REDIS_NAMESPACE of its own."},
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
	if len(variants) < 2 {
		return warnings // of one alone it is said where its settings would be used
	}
	return append(warnings, Unknown(variants)...)
}

// Unknown says of which replicas the settings are not known and why, as sentences for people, one for each reason. They are bounded.
func Unknown(variants []*Variant) []string {
	replicas := map[string][]string{}
	var reasons []string
	further := 0
	for _, variant := range variants {
		if variant.err == nil {
			continue
		}
		reason := variant.err.Error()
		if replicas[reason] == nil && len(reasons) == mostValues {
			further += len(variant.Replicas)
			continue
		}
		if replicas[reason] == nil {
			reasons = append(reasons, reason)
		}
		replicas[reason] = append(replicas[reason], variant.Replicas...)
	}
	texts := []string{}
	for _, reason := range reasons {
		slices.Sort(replicas[reason])
		texts = append(texts, fmt.Sprintf("The settings of %s are not known: %s.", who(replicas[reason], len(replicas[reason])), term.Printable(reason)))
	}
	if further > 0 {
		texts = append(texts, fmt.Sprintf("The settings of %s are not known either.", term.Count(further, "more replica")))
	}
	return texts
}
