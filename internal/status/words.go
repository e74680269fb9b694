package status

import (
	"strings"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/snapshot"
	"notifier/internal/status/report"
	"notifier/internal/term"
)

// redisTexts explains the kinds of trouble in which Redis refuses all writes.
var redisTexts = map[string]string{
	report.Full:       "Redis is full (maxmemory)",
	report.ReadOnly:   "Redis is read-only",
	report.NotSaving:  "Redis takes no writes, because it cannot save to its disk",
	report.NoReplicas: "Redis takes no writes, because too few Redis replicas follow it",
	report.Loading:    "Redis is loading its data",
}

// RedisRefusal returns the reason for which Redis refuses all writes, or "" if the error is another one.
func RedisRefusal(reason string) string { return redisTexts[report.Trouble(reason)] }

func redisText(reason, where string) string {
	if text := RedisRefusal(reason); text != "" {
		return text + where
	}
	return cut("Redis is unavailable"+where+": "+cause(reason), maxMessage)
}

// cause shortens an error to its cause: "slack: unavailable: http_503" to "http_503".
func cause(reason string) string {
	if rest, found := strings.CutPrefix(reason, "slack: "); found {
		if _, code, found := strings.Cut(rest, ": "); found {
			return code
		}
	}
	for _, prefix := range []string{"nats: ", "redis: "} {
		reason = strings.TrimPrefix(reason, prefix)
	}
	return reason
}

// slackText makes a clause of the reason of a failed post.
func slackText(reason string) string {
	if strings.HasPrefix(reason, "Slack ") {
		return reason
	}
	return "Slack fails with " + reason
}

// credentialsText makes a clause of the reason why posts fail with these settings, without the details.
func credentialsText(reason string) string {
	if strings.HasPrefix(reason, snapshot.NotSlack) {
		return snapshot.NotSlack
	}
	return "Slack refuses the token or webhook"
}

func pauseText(left time.Duration) string { return ratelimit.AskedToWait + ", " + span(left) + " left" }

// Bounds of foreign text, in bytes. A category and a channel fit.
const (
	maxName    = 128
	maxReason  = 160
	maxMessage = 300
)

// short cuts a name.
func short(name string) string { return cut(name, maxName) }

// cut cuts a text and makes it one printable line.
func cut(text string, max int) string {
	return term.Cut(term.Printable(text), max)
}

// span is a duration in its two largest units.
func span(d time.Duration) string {
	if d = max(0, d); d >= time.Hour {
		return term.ShortDuration(d.Round(time.Minute))
	}
	return term.Duration(d)
}

// earlier returns the earlier time. A zero time counts as unknown.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
