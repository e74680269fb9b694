package settings

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/internal/status/config"
)

// limitVariables lists the variables that LoadLimits reads and its argument can replace.
func limitVariables(env *Environment) map[string]*string {
	return map[string]*string{
		"LIMIT_GLOBAL":          &env.LimitGlobal,
		"LIMIT_CATEGORY":        &env.LimitCategory,
		"LIMIT_OVERRIDES":       &env.LimitOverrides,
		"LIMIT_GROUP":           &env.LimitGroup,
		"LIMIT_GROUP_OVERRIDES": &env.LimitGroupOverrides,
		"LIMIT_RESERVE":         &env.LimitReserve,
		"DEDUPE_WINDOW":         &env.DedupeWindow,
	}
}

func parseLimits(env Environment, problems *Problems, s *Store) {
	limits, errs := &s.Limits, [6]error{}
	limits.Global, errs[0] = ratelimit.ParseLimit(env.LimitGlobal)
	limits.Category, errs[1] = ratelimit.ParseLimit(env.LimitCategory)
	limits.Overrides, errs[2] = ratelimit.ParseOverrides(env.LimitOverrides)
	limits.Group, errs[3] = ratelimit.ParseGroupLimit(env.LimitGroup)
	limits.GroupOverrides, errs[4] = ratelimit.ParseGroupOverrides(env.LimitGroupOverrides)
	limits.Reserve, errs[5] = ratelimit.ParseReserve(env.LimitReserve)
	for i, variable := range []string{
		"LIMIT_GLOBAL", "LIMIT_CATEGORY", "LIMIT_OVERRIDES", "LIMIT_GROUP", "LIMIT_GROUP_OVERRIDES", "LIMIT_RESERVE",
	} {
		problems.addEach(variable, errs[i])
	}
	if !problems.unreadable("LIMIT_GLOBAL") { // else it is unknown how much can be reserved
		problems.addEach("LIMIT_RESERVE", limits.CheckReserve())
	}
	s.Dedupe = parseDuration(problems, "DEDUPE_WINDOW", env.DedupeWindow, shortestDedupe, longestDuration)
}

// parseRoutes reads "errors=C0123,team-a.>=#team-a".
func parseRoutes(problems *Problems, text string) pattern.Table[string] {
	if secret.MatchString(text) { // the parser's error would quote an entry
		problems.addChannel("SLACK_ROUTES", "", text)
		return pattern.Table[string]{}
	}
	routes, err := config.ParseRoutes(text)
	problems.addEach("SLACK_ROUTES", err)
	for name, channel := range routes.All() {
		problems.addChannel("SLACK_ROUTES", name+": ", channel)
	}
	return routes
}

// addChannel reports an invalid channel in a variable, with prefix before the text of the problem.
func (p *Problems) addChannel(variable, prefix, channel string) {
	switch {
	case secret.MatchString(channel):
		p.Add(variable, "%slooks like a token or a URL, expected a channel such as C0123 or #alerts; a bot token is for "+
			"SLACK_BOT_TOKEN, a webhook for SLACK_WEBHOOK_URL", prefix)
	case strings.ContainsAny(channel, " \t\r\n,;"):
		p.Add(variable, "%s%q, expected one channel such as C0123 or #alerts, without white space", prefix, channel)
	case isPerson(channel):
		p.Add(variable, "%s%q names a person, expected a channel ID such as C0123 or a name such as #alerts", prefix, channel)
	}
}

// isPerson reports whether a channel is one's name or user ID: @alice, U012AB3CD, W012AB3CD.
func isPerson(channel string) bool {
	return strings.HasPrefix(channel, "@") || userID.MatchString(channel)
}

var userID = regexp.MustCompile(`^[UW][0-9A-Z]{7,}$`)

// checkNames notes the names and patterns that match no category of NATS_SUBJECT, and those that are whole
// subjects.
func checkNames(problems *Problems, s Settings) {
	subject := s.NATS.Pattern
	check := func(variable, name string) {
		if meant, found := subject.Repeated(name); found {
			problems.Add(variable, "%s repeats the prefix of NATS_SUBJECT %q; expected %s", name, subject, meant)
		} else if !subject.Gives(name) {
			problems.Add(
				variable,
				"%s never matches, because the categories of NATS_SUBJECT %q are one token; expected a name or pattern without dots",
				name,
				subject,
			)
		}
	}
	for name := range s.Store.Limits.Overrides.All() {
		check("LIMIT_OVERRIDES", name)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Store.Limits.Reserve)) {
		check("LIMIT_RESERVE", name)
	}
	for name := range s.Slack.Routes.All() {
		check("SLACK_ROUTES", name)
	}
}
