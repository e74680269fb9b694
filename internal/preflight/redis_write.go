package preflight

import (
	"context"

	"notifier/internal/status/stats"
)

// write finds out whether the server takes writes now.
func (c *redisCheck) write(ctx context.Context) {
	reader, err := stats.NewReader(c.client, c.namespace)
	if err == nil {
		err = withTimeout(ctx, reader.Refuses)
	}
	if err != nil {
		c.report.fail(redisAdvice(err), "it refuses writes: %v", err)
	}
}
