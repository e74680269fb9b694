package settings

import (
	"fmt"

	"notifier/internal/snapshot"
	"notifier/internal/status/config"
)

// Deciding returns the settings that the status evaluates.
func (s Settings) Deciding() config.Deciding {
	return config.Deciding{
		Rules: s.Store.Limits, Dedupe: s.Store.Dedupe, Channel: s.Slack.Channel, Routes: s.Slack.Routes,
		Subject: s.NATS.Pattern,
	}
}

// Snapshot returns the settings for a replica's snapshot. Settings in which replicas may well differ, such as
// addresses, files and concurrency, are not in its hash.
func (s Settings) Snapshot() snapshot.Settings {
	others := fmt.Sprintf("%q %q %d %t %q %q %s %q %s %s", s.NATS.Stream, s.NATS.Consumer, s.Events.MaxBytes,
		s.Slack.AllowMarkup, s.DeadLetter, s.Dropped, s.Digest, s.DigestChannel, s.MaxAge, s.Store.Limits.Pace)
	return s.Deciding().Snapshot(others)
}
