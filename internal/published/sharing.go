package published

import (
	"encoding/json"
	"maps"
)

// Sharing reports whether the variants are deployments that share a namespace on purpose, as those do that have outgrown one stream:
// each reads a stream and subjects that no other one reads, and all post to the same default channel. Two teams that share one by
// mistake have channels of their own; with a webhook the channel is not known, so that counts as a mistake, too. Fill comes first.
func Sharing(variants []*Variant) bool {
	channel := ""
	byStream, bySubject := map[string]string{}, map[string]string{}
	for i, variant := range variants {
		values := variant.document.Settings
		if i == 0 {
			channel = values[defaultChannel]
		}
		if variant.err != nil || channel == "" || values[defaultChannel] != channel || values[mode] != jetStream {
			return false
		}
		reads := values[stream] + " " + values[subject] + " " + values[consumer]
		if byStream[values[stream]] == "" {
			byStream[values[stream]] = reads
		}
		if bySubject[values[subject]] == "" {
			bySubject[values[subject]] = reads
		}
		if byStream[values[stream]] != reads || bySubject[values[subject]] != reads {
			return false
		}
	}
	return len(byStream) > 1
}

// Distinct is how many different settings the variants have. What deployments that share a namespace on purpose read does not count.
func Distinct(variants []*Variant) int {
	if !Sharing(variants) {
		return len(variants)
	}
	rests := map[string]bool{}
	for _, variant := range variants {
		rest := Document{Settings: maps.Clone(variant.document.Settings), LeftOut: variant.document.LeftOut}
		for _, name := range deployment {
			delete(rest.Settings, name)
		}
		text, _ := json.Marshal(rest) // maps of strings cannot fail
		rests[string(text)] = true
	}
	return len(rests)
}

// WorthSaying are the differences without those that are on purpose.
func WorthSaying(variants []*Variant, differences []Difference) []Difference {
	if !Sharing(variants) {
		return differences
	}
	var worth []Difference
	for _, difference := range differences {
		if !difference.Deployment() {
			worth = append(worth, difference)
		}
	}
	return worth
}
