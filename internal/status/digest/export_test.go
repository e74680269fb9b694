package digest

import (
	"context"
	"time"

	"notifier/internal/status/report"
)

// Turn does the work of one round of Run.
func (d *Digest) Turn(ctx context.Context) { d.turn(ctx) }

// Text returns the message about drops.
func Text(interval time.Duration, drops []report.Drop) string { return text(interval, drops) }
