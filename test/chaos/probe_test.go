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

// probeSubject is a subject of the stream that the workers' consumer does not deliver.
const probeSubject = "probe"

const (
	probeEvery   = 10 * time.Millisecond
	probeTimeout = 150 * time.Millisecond
)

// probe tries, as an independent client of the given servers, until the stream acknowledges a publication
// and the workers' consumer responds to a pull request. It returns the time since the leader was killed,
// and false if ctx ended first.
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

// until repeats is until it succeeds. It returns false if ctx ends first.
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

// publishes reports whether the stream stores a message, which takes a majority of its replicas.
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

// fetches reports whether the consumer responds to a pull request. The request allows one byte, which is
// less than any message. So the response says that there are no messages or that the next one is too
// large, and the probe takes none from the workers.
func fetches(ctx context.Context, connection *nats.Conn) bool {
	reply, err := connection.RequestWithContext(ctx, "$JS.API.CONSUMER.MSG.NEXT."+streamName+"."+consumerName,
		[]byte(`{"batch":1,"no_wait":true,"max_bytes":1}`))
	if err != nil {
		return false
	}
	code, description := reply.Header.Get("Status"), strings.ToLower(reply.Header.Get("Description"))
	return code == "404" || code == "409" && strings.Contains(description, "exceeds maxbytes")
}

// forget removes the probes' messages from the stream.
func (c *cluster) forget() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	stream, err := c.d.js.Stream(ctx, streamName)
	if err != nil {
		return err
	}
	return stream.Purge(ctx, jetstream.WithPurgeSubject(probeSubject))
}
