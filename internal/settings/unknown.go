package settings

import (
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"

	"notifier/internal/term"
)

const (
	maxUnknown     = 20  // warnings; most variables are of other programs
	maxUnknownName = 128 // bytes; no setting is as long
)

var (
	// own matches names that notifier alone has, so an unknown one is a mistake, however far from a setting.
	own = regexp.MustCompile(`^(LIMIT|DEDUPE|DEAD_LETTER|DIGEST|DROPPED)_`)
	// foreign matches names that orchestrators derive from services, and Slack's other tokens.
	foreign = regexp.MustCompile(`_PORT(_|$)|_SERVICE_HOST$|_ENV_|^SLACK_(APP|USER)_TOKEN`)
)

// unknownVariables describes variables of the environment that only resemble a setting. It shows no value. An
// empty variable counts as unset.
func unknownVariables() []string {
	var list []string
	known := Variables()
	for _, entry := range slices.Sorted(slices.Values(os.Environ())) {
		name, value, _ := strings.Cut(entry, "=")
		nearest, similar := nearestSetting(name, known)
		if value == "" || !similar || len(list) == maxUnknown {
			continue
		}
		text := term.Printable(name) + ": is not a setting of notifier, and has no effect"
		if nearest != "" {
			text += "; " + nearest + " is one"
		}
		list = append(list, text)
	}
	return list
}

// nearestSetting reports whether a name is a setting's, misspelt, and returns the nearest setting that begins
// with the same word, or "".
func nearestSetting(name string, known []Variable) (nearest string, similar bool) {
	base, ofFile := strings.CutSuffix(strings.TrimPrefix(strings.ToUpper(name), "NOTIFIER_"), "_FILE")
	first, rest, _ := strings.Cut(base, "_")
	if len(name) > maxUnknownName || rest == "" || foreign.MatchString(base) {
		return "", false
	}
	least := maxUnknownName
	for _, v := range known {
		if name == v.Name || name == v.Name+"_FILE" {
			return "", false
		}
		word, end, _ := strings.Cut(strings.TrimSuffix(v.Name, "_FILE"), "_")
		if word != first {
			continue
		}
		distance := levenshtein.ComputeDistance(rest, end)
		if distance < least && (distance <= len(end)/2 || strings.HasPrefix(rest, end)) {
			nearest, least = v.Name, distance
		}
	}
	if ofFile && nearest != "" && !strings.HasSuffix(nearest, "_FILE") {
		nearest += "_FILE"
	}
	return nearest, nearest != "" || own.MatchString(base)
}
