package preflight

import (
	"context"

	"notifier/internal/status/stats"
)

// write finds out whether the server takes writes now. A replica was reported.
func (c *redisCheck) write(ctx context.Context) {
	reader, err := stats.NewReader(c.client, c.namespace)
	if err == nil {
		err = withTimeout(ctx, reader.Refuses)
	}
	if err != nil && c.info["role"] != "slave" {
		c.report.fail(redisAdvice(err), "it refuses writes: %v", err)
	}
}
