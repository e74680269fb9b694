package preflight

import (
	"context"
	"strings"

	"notifier/internal/status"
	"notifier/internal/status/stats"
	"notifier/internal/term"
)

// here is what these settings are called among those of replicas.
const here = "this configuration"

// checkWorkers reports how the running workers are, in the words of status: notes, because that is no fault
// of the settings that are checked, which may be to repair them. That the workers have other settings is a
// warning. Why Redis cannot be read is in its own area.
func checkWorkers(ctx context.Context, running status.Source, r *report) {
	var now status.Status
	var differ []status.Difference
	var replicas int
	err := withTimeout(ctx, func(ctx context.Context) (err error) {
		if now, err = running.Read(ctx); err == nil {
			differ, replicas, err = running.Compare(ctx, here)
		}
		return err
	})
	if err != nil {
		if stats.TroubleKind(err.Error()) == stats.WrongKey { // the area redis does not look at these keys
			r.warn(redisAdvice(err), "the state of the running workers is not known: %v", err)
		}
		return
	}
	if now.Summary.Level == status.LevelOK {
		r.ok("%s", now.Summary.Text)
	} else {
		r.note("", "%s", now.Summary.Text)
	}
	for _, line := range now.Summary.Attention {
		if !strings.HasPrefix(line.Kind, "settings ") {
			r.note("", "%s", line.Text)
		}
	}
	for _, difference := range differ {
		if difference.Deployment() {
			r.warn("give each deployment a REDIS_NAMESPACE of its own, or correct the setting",
				"another deployment uses this namespace, and so the same limits: %s", difference.Text())
			continue
		}
		r.warn("restart the workers that have another value, or correct this configuration",
			"the running workers and this configuration differ: %s", difference.Text())
	}
	if len(differ) == 0 && replicas > 0 {
		r.ok("%s, with the settings of this configuration", term.Count(replicas, "running replica"))
	}
}
