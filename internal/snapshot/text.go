package snapshot

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"notifier/internal/term"
)

// NearlyFull is the used share of a stream or an account that is worth a warning. Status, check and the alert
// have the same, so that an operator who was woken by the alert finds its reason.
const NearlyFull = 0.8

// Lines describes the conditions of a worker, a line each: outages, channels that refuse every message,
// streams that are nearly full or hold undeliverable events, and the number of held events. It returns nil if
// there are no conditions. Reasons can quote servers, so print the lines through term.Printable.
func (s Snapshot) Lines() []string {
	var lines []string
	for _, wait := range s.Waits {
		lines = append(lines, s.waitLine(wait))
	}
	for _, c := range s.Channels {
		if c.Refused != "" {
			lines = append(lines, fmt.Sprintf("channel %s: refuses every message: %s", c.Name, c.Refused))
		}
	}
	for _, stream := range s.Streams {
		if used, bound := stream.Used(); used >= NearlyFull {
			effect := "a full stream refuses new messages"
			if stream.DiscardsOld {
				effect = "a full stream deletes its oldest messages"
			}
			lines = append(lines, fmt.Sprintf("stream %s: %.0f%% of its max %s used; %s",
				stream.Name, 100*used, bound, effect))
		}
		if stream.Stuck != nil && *stream.Stuck > 0 {
			lines = append(lines, fmt.Sprintf("stream %s: %s will never be delivered",
				stream.Name, term.Count(*stream.Stuck, "event")))
		}
	}
	if s.Held > 0 {
		lines = append(lines, fmt.Sprintf("%d of %d in flight held: %s",
			s.Held, s.InFlight, strings.Join(s.causes(), ", ")))
	}
	return lines
}

// waitLine describes one outage: "slack #alerts: http_503, 42 queued, for 4m".
func (s Snapshot) waitLine(wait Wait) string {
	subject, events := wait.For, fmt.Sprintf("%d held", s.HeldFor[wait.For])
	if wait.Channel != "" {
		subject += " " + wait.Channel
		i := slices.IndexFunc(s.Channels, func(c Channel) bool { return c.Name == wait.Channel })
		queued := 0
		if i >= 0 {
			queued = s.Channels[i].Queued
		}
		events = fmt.Sprintf("%d queued", queued)
	}
	return fmt.Sprintf("%s: %s, %s, for %s", subject, strings.TrimPrefix(wait.Reason, wait.For+": "), events,
		term.Duration(max(0, s.Time.Sub(wait.Since))))
}

// causes lists the causes of held events in alphabetical order: "pace 7", "slack 42".
func (s Snapshot) causes() []string {
	var causes []string
	for _, cause := range slices.Sorted(maps.Keys(s.HeldFor)) {
		causes = append(causes, fmt.Sprintf("%s %d", cause, s.HeldFor[cause]))
	}
	return causes
}
