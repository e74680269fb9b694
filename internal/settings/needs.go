package settings

import (
	"slices"
	"strings"
)

// Groups of settings, for Load.
const (
	GroupNATS   = "nats"
	GroupRedis  = "redis"
	GroupLimits = "limits"
	GroupSlack  = "slack"
	GroupWorker = "worker"
	GroupAdmin  = "admin"
)

// Load reads and checks the settings that a command needs: groups, or single variables by name. Without needs
// it loads all. Errors are *Problems with the problems of these variables alone; the values of others are
// undefined. If the redis group is loaded, the caller closes Store.Redis.
func Load(needs ...string) (Settings, error) { return LoadWith(nil, needs...) }

// LoadWith is Load with values that replace those of the variables that they name.
func LoadWith(instead map[string]string, needs ...string) (Settings, error) {
	if len(needs) == 0 {
		s, _, err := LoadWithOrigins()
		return s, err
	}
	all := &Problems{}
	env := Read(all)
	for variable, field := range limitVariables(&env) {
		if value, replaced := instead[variable]; replaced {
			*field = value
		}
	}
	all.judge(env)
	var s Settings
	if needed("REDIS_URL", needs) {
		parseRedis(env, all, &s.Store, 0)
	}
	s.NATS = parseNATS(env, all)
	parseLimits(env, all, &s.Store)
	parseSlack(env, all, &s)
	parseEvents(env, all, &s)
	parseOutputs(env, all, &s)
	parseWorker(env, all, &s)
	problems := all.about(slices.DeleteFunc(names(), func(name string) bool { return !needed(name, needs) }))
	if err := problems.Err(); err != nil {
		s.Store.close()
		return Settings{}, err
	}
	return s, nil
}

func names() []string {
	var names []string
	for _, variable := range Variables() {
		names = append(names, variable.Name)
	}
	return names
}

func needed(variable string, needs []string) bool {
	return slices.Contains(needs, variable) || slices.Contains(needs, groupOf(variable))
}

func groupOf(variable string) string {
	prefix, _, _ := strings.Cut(variable, "_")
	switch prefix {
	case "NATS":
		return GroupNATS
	case "REDIS":
		return GroupRedis
	case "LIMIT", "DEDUPE":
		return GroupLimits
	case "SLACK":
		return GroupSlack
	case "ADMIN":
		return GroupAdmin
	}
	return GroupWorker
}
