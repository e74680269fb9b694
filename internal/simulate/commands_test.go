//go:build !production

package simulate_test

import (
	"regexp"
	"strings"
	"testing"

	"notifier/internal/luastore"
	"notifier/lua"
)

// TestTheStoreKnowsWhatTheScriptsCall: the scripts that a simulation runs call no command or function that its store lacks,
// also where no history of a test comes by.
func TestTheStoreKnowsWhatTheScriptsCall(t *testing.T) {
	t.Parallel()
	store := luastore.New()
	defer store.Close()
	client := store.Client()
	defer client.Close()
	known := 0
	for name, script := range map[string]string{
		"admit.lua": lua.Admit, "tidy.lua": lua.Tidy, "peek.lua": lua.Peek, "reform.lua": lua.Reform, "sent.lua": lua.Sent,
	} {
		for _, command := range regexp.MustCompile(`'([A-Z]{3,})'`).FindAllStringSubmatch(script, -1) {
			err := client.Eval(t.Context(), "return redis.call(ARGV[1])", nil, command[1]).Err()
			if option := strings.HasPrefix(command[1], "WITH") || command[1] == "LIMIT" || command[1] == "WRONGTYPE"; option {
				continue
			}
			if known++; err != nil && strings.Contains(err.Error(), "does not know") {
				t.Errorf("%s: %v; add it to the commands of internal/luastore", name, err)
			}
		}
		for _, function := range regexp.MustCompile(`redis\.([a-z_]+)`).FindAllStringSubmatch(script, -1) {
			if got, err := client.Eval(t.Context(), "return type(redis[ARGV[1]])", nil, function[1]).Text(); err != nil || got != "function" {
				t.Errorf("%s: redis.%s is a %s, %v, expected a function", name, function[1], got, err)
			}
		}
	}
	if known < 30 {
		t.Errorf("%d commands found in the scripts, expected more", known)
	}
}
