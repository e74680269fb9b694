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

// generic lists first words of settings that other programs use, too. A variable with one of them is a
// mistake only if it misspells a setting.
var generic = []string{"BATCH", "LOG"}

// deployment lists variables of docker-compose.yml. Workers receive them, because they are in .env.
var deployment = []string{
	"NATS_WORKER_PASSWORD", "NATS_PUBLISHER_PASSWORD", "NATS_OPERATOR_PASSWORD", "NATS_PORT",
	"REDIS_PASSWORD",
}

// injected matches "NAME=value" of the variables that Kubernetes and Docker derive from a service, for
// example from one named redis. REDIS_PORT is theirs only with an address: people set it to a number.
var injected = regexp.MustCompile(`^[^=]+(_SERVICE_HOST=|_SERVICE_PORT(_[^=]*)?=|` +
	`_PORT_\d+_(TCP|UDP|SCTP)(_[A-Z]+)?=|_PORT=(tcp|udp|sctp)://|_ENV_[^=]*=)`)

// unknownVariables describes variables of the environment that begin like a setting and are none. It shows no
// value. An empty variable counts as unset.
func unknownVariables() []string {
	var list []string
	known := Variables()
	for _, entry := range slices.Sorted(slices.Values(os.Environ())) {
		name, value, _ := strings.Cut(entry, "=")
		nearest, similar := nearestSetting(name, known)
		if value == "" || !similar || injected.MatchString(entry) || len(list) == maxUnknown {
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

// nearestSetting reports whether a name begins like a setting and is none. It returns the setting that the
// name misspells, or "".
func nearestSetting(name string, known []Variable) (nearest string, similar bool) {
	base, ofFile := strings.CutSuffix(strings.TrimPrefix(strings.ToUpper(name), "NOTIFIER_"), "_FILE")
	first, rest, _ := strings.Cut(base, "_")
	if len(name) > maxUnknownName || rest == "" || slices.Contains(deployment, name) {
		return "", false
	}
	least := maxUnknownName
	own := false
	for _, v := range known {
		if name == v.Name || name == v.Name+"_FILE" {
			return "", false
		}
		word, end, _ := strings.Cut(strings.TrimSuffix(v.Name, "_FILE"), "_")
		if word != first {
			continue
		}
		own = !slices.Contains(generic, word)
		distance := levenshtein.ComputeDistance(rest, end)
		if distance < least && (distance <= len(end)/2 || strings.HasPrefix(rest, end)) {
			nearest, least = v.Name, distance
		}
	}
	if ofFile && nearest != "" && !strings.HasSuffix(nearest, "_FILE") {
		nearest += "_FILE"
	}
	return nearest, own || nearest != ""
}
