package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"notifier/internal/status/stats"
	"notifier/internal/term"
)

// Unposted is what waits for one Slack channel, in all replicas together: admitted, and not posted yet.
type Unposted struct {
	Channel string  `json:"channel"`
	Events  int     `json:"events"`
	OldestS float64 `json:"oldest_s"`      // how long ago the oldest was published
	Why     string  `json:"why,omitempty"` // what they wait for: slack, pace; empty: nothing keeps them
	// for people: "#alerts: 42 events wait to be posted, the oldest for 3m; the pace of the channel"
	Text string `json:"text"`
}

// UnpostedOf adds up over the replicas, by channel in alphabetical order. Where they differ in what they wait
// for, Slack counts more than the pace.
func UnpostedOf(replicas []stats.Replica, now time.Time) []Unposted {
	sums := map[string]Unposted{}
	for _, replica := range replicas {
		for _, u := range replica.Unposted {
			sum := sums[u.Channel]
			sum.Channel = u.Channel
			sum.Events += u.Events
			sum.OldestS = max(sum.OldestS, term.Seconds(now.Sub(u.Oldest)))
			if sum.Why != "slack" {
				sum.Why = cmp.Or(u.Why, sum.Why)
			}
			sums[u.Channel] = sum
		}
	}
	list := []Unposted{}
	for _, channel := range slices.Sorted(maps.Keys(sums)) {
		sum := sums[channel]
		sum.Text = sum.text()
		list = append(list, sum)
	}
	return list
}

// reasons is Unposted.Why for people.
var reasons = map[string]string{
	"slack": "; Slack takes no posts at the moment",
	"pace":  "; the pace of the channel",
}

func (u Unposted) text() string {
	return fmt.Sprintf(
		"%s: %s to be posted, the oldest for %s%s",
		u.Channel,
		waiting(u.Events),
		seconds(u.OldestS),
		reasons[u.Why],
	)
}

// shownAfter is how long events without a reason to wait take until people are shown them: a moment later
// most are posted.
const shownAfter = 5 * time.Second
