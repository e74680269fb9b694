package main

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"notifier/internal/ratelimit"
)

// checkSettings looks for settings that are good each by itself and bad together, or that open a door.
func checkSettings(_ context.Context, c config, f *findings) {
	f.ok("all are understood")
	if c.shutdownTimeout < c.slack.Timeout {
		f.warn("set SHUTDOWN_TIMEOUT above SLACK_TIMEOUT",
			"SHUTDOWN_TIMEOUT %s is shorter than SLACK_TIMEOUT %s, so a stopping worker can cut a post off that is then made again",
			ratelimit.ShortDuration(c.shutdownTimeout), ratelimit.ShortDuration(c.slack.Timeout))
	}
	switch {
	case c.adminAddr == "":
		f.note("", "ADMIN_ADDR is empty: there are no health checks and no metrics")
	case !isLoopback(hostOf(c.adminAddr)):
		f.note("it has no login, so let only probes and Prometheus reach it",
			"ADMIN_ADDR %s can be reached from the network", c.adminAddr)
	}
	if api, err := url.Parse(c.slack.APIURL); err == nil && api.Scheme == "http" && !isLoopback(api.Hostname()) && c.slack.Token != "" {
		f.warn("use https", "SLACK_API_URL is http, so the token and all messages cross the network readable")
	}
	if hook, err := url.Parse(c.slack.WebhookURL); err == nil && hook.Scheme == "http" && !isLoopback(hook.Hostname()) {
		f.warn("use https", "SLACK_WEBHOOK_URL is http, so the webhook and all messages cross the network readable")
	}
	if c.slack.AllowMarkup {
		f.note("let only those publish whom you trust with that", "SLACK_MARKUP is allow: an event can ping the whole channel and disguise links")
	}
}

func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// checkLimits tells the limits in their shortest form, and where one of them does nothing or is not what it seems.
func checkLimits(_ context.Context, c config, f *findings) {
	rules := c.rules
	f.ok("%s in all, %s per category", rules.Global, rules.Category)
	if neverFirst(rules.Category, rules.Global) {
		f.warn("set LIMIT_CATEGORY lower",
			"the category limit %s lets through all that the global limit %s does: one category can take every slot", rules.Category, rules.Global)
	}
	longest := max(longestWindow(rules.Global), longestWindow(rules.Category))
	var names []string
	for name, limit := range rules.Overrides {
		names = append(names, name)
		longest = max(longest, longestWindow(limit))
	}
	slices.Sort(names)
	for _, name := range names {
		limit := rules.Overrides[name]
		f.ok("%s for %s", limit, name)
		if neverFirst(limit, rules.Global) {
			f.warn("set it lower in LIMIT_OVERRIDES",
				"the limit %s for %s lets through all that the global limit %s does: this category can take every slot", limit, name, rules.Global)
		}
	}
	if c.dedupe < longest {
		f.note("", "DEDUPE_WINDOW %s is shorter than the longest limit, so it counts as %s",
			ratelimit.ShortDuration(c.dedupe), ratelimit.ShortDuration(longest))
	}
	if c.maxAge == 0 {
		f.note("set it where old news is no news", "EVENT_MAX_AGE is 0: after an outage events are sent however old they are")
	}
}

func longestWindow(limit ratelimit.Limit) time.Duration {
	longest := time.Duration(0)
	for _, tier := range limit {
		longest = max(longest, tier.Window)
	}
	return longest
}

// neverFirst reports whether a category's limit can refuse nothing that the global limit has not refused already: each of
// its tiers is at least as wide as a global one of at least its window.
func neverFirst(category, global ratelimit.Limit) bool {
	return !slices.ContainsFunc(category, func(own ratelimit.Tier) bool {
		return !slices.ContainsFunc(global, func(all ratelimit.Tier) bool { return all.Count <= own.Count && all.Window >= own.Window })
	})
}

// listed is "a, b and c".
func listed(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
