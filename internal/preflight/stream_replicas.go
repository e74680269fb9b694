package preflight

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// checkReplicas warns of a stream that a cluster keeps on one server alone. Who has set NATS_REPLICAS to 1
// wants that.
func (c *streamCheck) checkReplicas(config jetstream.StreamConfig) {
	if config.Replicas == 1 && c.client.js.Conn().ConnectedClusterName() != "" && c.settings.NATS.Replicas != 1 {
		c.report.warn(
			"nats stream edit "+config.Name+" --replicas 3; NATS_REPLICAS counts only where a worker creates a stream",
			"stream %s has one replica in a cluster of NATS servers: without that server events wait, and are lost if its disk is",
			config.Name,
		)
	}
}

// missingReplicas warns of a number of replicas that a server which is alone cannot give to a stream.
func (c *streamCheck) missingReplicas() {
	if wanted := c.settings.NATS.Replicas; wanted > 1 && c.client.js.Conn().ConnectedClusterName() == "" {
		c.report.warn(
			"set NATS_REPLICAS to 0 or 1, or make the server a cluster",
			"NATS_REPLICAS is %d, and the server is not in a cluster: a worker waits, as it cannot create its streams",
			wanted,
		)
	}
}

// dropped looks whether what is republished is kept by anybody.
func (c *streamCheck) dropped(ctx context.Context) {
	if c.settings.Dropped == "" {
		return
	}
	subject := c.settings.Dropped + ".>"
	stream, err := c.owner(ctx, subject)
	switch { // another error only means that this user may not ask
	case errors.Is(err, jetstream.ErrStreamNotFound):
		c.report.warn(
			"create a stream for them: nats stream add DROPPED --subjects '"+subject+"' --max-age 7d --defaults",
			"no stream takes %s: dropped events reach only those who listen at that moment",
			subject,
		)
	case err == nil:
		c.report.ok("dropped events are kept in stream %s", stream)
	}
}
