package preflight

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/internal/settings"
)

// checkPace shows the pace, and where the limits let more into a channel than it posts there.
func checkPace(s settings.Settings, r *report) {
	pace := s.Store.Limits.Pace
	if pace == (ratelimit.Tier{}) {
		r.note(
			"set SLACK_PACE to 10/10s, which Slack takes",
			"SLACK_PACE is off: a burst into one channel meets Slack's limit of about one message a second",
		)
		return
	}
	r.ok("SLACK_PACE %s: what is above it in one channel waits for its turn", pace)
	into := intoChannels(s)
	for _, channel := range slices.Sorted(maps.Keys(into)) {
		perMinute, paced := into[channel]*60, rate(ratelimit.Limit{pace})*60
		if perMinute <= paced {
			continue
		}
		r.warn(
			"lower LIMIT_GLOBAL, give categories channels of their own in SLACK_ROUTES, or set EVENT_MAX_AGE, which bounds how long an event waits",
			"the limits let up to %.4g events a minute into %s and SLACK_PACE %s posts %.4g: while such a storm lasts, %.4g more wait with each minute, %s",
			perMinute,
			cmp.Or(channel, "the webhook's channel"),
			pace,
			paced,
			perMinute-paced,
			boundOfWaiting,
		)
	}
}

// boundOfWaiting is where the bound of events is that wait for their turn.
const boundOfWaiting = "in the workers and then in the stream, until half of the consumer's max_ack_pending waits and nothing more is pulled"

// intoChannels is how many events a second the limits let into each channel at most, in the long run. Any
// number of categories can use the default channel, so it can get all that the global limit allows. So can
// one with a pattern.
func intoChannels(s settings.Settings) map[string]float64 {
	limits := s.Store.Limits
	all := rate(limits.Global)
	into := map[string]float64{s.Slack.Channel: all}
	for name, channel := range s.Slack.Routes.All() {
		reach := all
		if !pattern.HasWildcard(name) {
			reach = rate(limits.LimitFor(name))
		}
		// With a wildcard it matches in any number of groups.
		if group := ratelimit.GroupOf(name); !pattern.HasWildcard(group) {
			reach = min(reach, rate(limits.GroupLimit(group)))
		}
		into[channel] = min(all, into[channel]+reach)
	}
	return into
}

// rate is how many events a second a limit lets through in the long run; an empty one has no bound.
func rate(limit ratelimit.Limit) float64 {
	lowest := math.Inf(1)
	for _, tier := range limit {
		lowest = min(lowest, float64(tier.Count)*float64(time.Second)/float64(tier.Window))
	}
	return lowest
}
