// Package preflight looks at whether a worker with these settings could do its job, as "notifier check" shows
// it: it examines the settings themselves and asks NATS, Redis and Slack, and changes nothing anywhere.
//
// It knows what a worker needs from each of them and what could go wrong later, and returns findings. It does
// not know how they are shown, or what exit code follows.
//
// Reading order: preflight.go (what runs, and when it is done), finding.go, and a file for each thing that is
// examined: settings.go with admin.go, limits.go with pace.go, nats.go with stream.go, stream_replicas.go and
// consumer.go, redis.go with redis_write.go, redis_durability.go and redis_memory.go, workers.go,
// outcomes.go, slack.go.
package preflight

import (
	"context"
	"time"

	"notifier/internal/settings"
	"notifier/internal/status"
)

// Timeout is how long one connection, or one answer, is waited for.
const Timeout = 5 * time.Second

// Area is one thing that is examined, independently of all others.
type Area struct {
	Name string // settings, limits, nats, redis, workers or slack

	report report
	done   chan struct{}
}

// Run examines everything at the same time and returns at once: the areas in the order in which they are
// shown. Each of them has its findings when it is done; after ctx has ended, soon. running is where the state
// of the running workers is.
func Run(ctx context.Context, s settings.Settings, running status.Source) []*Area {
	examinations := []struct {
		name    string
		examine func(context.Context, settings.Settings, *report)
	}{
		{"settings", checkSettings}, {"limits", checkLimits}, {"nats", checkNATS}, {"redis", checkRedis},
		{"workers", func(ctx context.Context, _ settings.Settings, r *report) { checkWorkers(ctx, running, r) }},
		{"slack", checkSlack},
	}
	areas := make([]*Area, len(examinations))
	for i, e := range examinations {
		area := &Area{Name: e.name, done: make(chan struct{})}
		areas[i] = area
		go func() {
			defer close(area.done)
			e.examine(ctx, s, &area.report)
		}()
	}
	return areas
}

// Done is closed when the area has all its findings.
func (a *Area) Done() <-chan struct{} { return a.done }

// Findings waits until the area is done and returns what was found, in the order in which it is shown.
func (a *Area) Findings() []Finding {
	<-a.done
	return a.report.findings
}

// Count waits until the area is done and returns how many of its findings have this level.
func (a *Area) Count(level Level) int {
	n := 0
	for _, finding := range a.Findings() {
		if finding.Level == level {
			n++
		}
	}
	return n
}
