package preflight

import (
	"context"
	"strings"

	"notifier/internal/status"
)

// checkWorkers reports how the running workers are, in the words of status. That is no fault of the settings that are checked, so none
// of it is a warning. Which settings differ is looked at with Redis, as is why Redis cannot be read.
func checkWorkers(ctx context.Context, running status.Source, r *report) {
	var now status.Status
	err := withTimeout(ctx, func(ctx context.Context) (err error) {
		now, err = running.Read(ctx)
		return err
	})
	if err != nil {
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
}
