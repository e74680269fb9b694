package chaos

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/wait"
)

// probeSubject is one of the stream's that no worker reads.
const probeSubject = "probe"

// Timing of a probe.
const (
	probeEvery   = 10 * time.Millisecond
	probeTimeout = 150 * time.Millisecond
)

// probe asks some servers, as any client would, until the stream has acknowledged a publication and the
// workers' own consumer has answered a request for messages. It returns how long that took since an election
// became necessary; false: ctx has ended before.
func (c *cluster) probe(ctx context.Context, servers []*natsNode, since time.Time) (time.Duration, bool) {
	connection, err := nats.Connect(urlOf(servers), nats.MaxReconnects(-1), nats.ReconnectWait(probeEvery), nats.ReconnectJitter(0, 0))
	if err != nil {
		c.d.faults.complain(err)
		return 0, false
	}
	defer connection.Close()
	var both sync.WaitGroup
	var stored, answered bool
	both.Go(func() { stored = until(ctx, func(ctx context.Context) bool { return publishes(ctx, connection) }) })
	both.Go(func() { answered = until(ctx, func(ctx context.Context) bool { return fetches(ctx, connection) }) })
	both.Wait()
	return time.Since(since), stored && answered
}

// until tries again and again; false: ctx has ended before it was so.
func until(ctx context.Context, is func(context.Context) bool) bool {
	for {
		attempt, cancel := context.WithTimeout(ctx, probeTimeout)
		done := is(attempt)
		cancel()
		if done {
			return true
		}
		if !wait.For(ctx, probeEvery) {
			return false
		}
	}
}

// publishes reports whether the stream takes a message, by the majority of its copies.
func publishes(ctx context.Context, connection *nats.Conn) bool {
	reply, err := connection.RequestWithContext(ctx, probeSubject, nil)
	if err != nil {
		return false
	}
	var ack struct {
		Stream string `json:"stream"`
		Error  any    `json:"error"`
	}
	return json.Unmarshal(reply.Data, &ack) == nil && ack.Stream == streamName && ack.Error == nil
}

// fetches reports whether the consumer answers a request for messages. It asks for a message of one byte, and
// there is none that small: so the answer is that there is no message, or that the next one is too large, and
// nothing is taken from the workers.
func fetches(ctx context.Context, connection *nats.Conn) bool {
	reply, err := connection.RequestWithContext(ctx, "$JS.API.CONSUMER.MSG.NEXT."+streamName+"."+consumerName,
		[]byte(`{"batch":1,"no_wait":true,"max_bytes":1}`))
	if err != nil {
		return false
	}
	code, description := reply.Header.Get("Status"), strings.ToLower(reply.Header.Get("Description"))
	return code == "404" || code == "409" && strings.Contains(description, "exceeds maxbytes")
}

// forget removes what probes have published.
func (c *cluster) forget() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	stream, err := c.d.js.Stream(ctx, streamName)
	if err != nil {
		return err
	}
	return stream.Purge(ctx, jetstream.WithPurgeSubject(probeSubject))
}
