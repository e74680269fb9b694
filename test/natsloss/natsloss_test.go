// Package natsloss shows that nats-server deletes unacknowledged messages of a replicated stream after a
// restart of one server. It contains no part of notifier: three servers, streams with three replicas, one
// consumer each, and a client that holds messages.
//
// A restarting server loads streams and consumers from its disk, then joins their Raft groups, streams first.
// Until a consumer has joined, its server has no Raft node for it. If the stream catches up earlier, it deletes
// the messages that were acknowledged meanwhile, and the consumer records each deletion as an acknowledgement
// in its own state, outside its log (consumer.decStreamPending, processTerm, updateAcks). Its acknowledgement
// floor now exceeds the floor in the snapshot that the consumer's leader sends, so the server discards the
// snapshot as an old update (consumerFileStore.Update) and misses the deliveries in it. With the next delivery
// these messages lie between floor and last delivery without being pending, so they count as acknowledged.
// When the server leads the stream, it deletes them (consumer.checkStateForInterestStream). When it leads the
// consumer, it does not deliver them again.
//
// It happens with nats-server 2.15.2 and 2.15.3, with retention "work queue" and "interest", also if the server
// was stopped properly. With retention "limits" an acknowledgement deletes nothing, and no message is lost.
// Nor is one lost if decStreamPending acknowledges only on the consumer's leader.
package natsloss

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/test/kit"
	"notifier/test/natstest"
)

const (
	streams    = 10   // The order in which groups start is random: some of the streams lose messages.
	bystanders = 40   // Streams without consumers delay the start of the consumers' groups.
	settled    = 10   // messages of each stream that are acknowledged while the server is down
	held       = 100  // messages of each stream that are delivered then, and never acknowledged
	progress   = 8000 // reports of progress, enough for the consumer's leader to take a snapshot
)

// TestRestartDeletesUnacknowledgedMessages fails when nats-server loses nothing any longer. Then
// docs/operating.md need not warn, and this package can go.
func TestRestartDeletesUnacknowledgedMessages(t *testing.T) {
	kit.Long(t)
	for retention, loses := range map[jetstream.RetentionPolicy]bool{
		jetstream.WorkQueuePolicy: true, jetstream.InterestPolicy: true, jetstream.LimitsPolicy: false,
	} {
		t.Run(retention.String(), func(t *testing.T) {
			deleted, forgotten := restartFollower(t, retention)
			t.Logf("nats-server %s: of %d unacknowledged messages %d were deleted, %d are not pending",
				server.VERSION, streams*held, deleted, forgotten)
			if loses != (deleted > 0) || loses != (forgotten > 0) {
				t.Errorf("expected a loss: %v", loses)
			}
		})
	}
}

// restartFollower restarts a server and makes it the leader of all streams and consumers. It counts the
// unacknowledged messages that the streams have deleted, and those that the consumers will not deliver again.
func restartFollower(t *testing.T, retention jetstream.RetentionPolicy) (deleted, forgotten int) {
	options := make([]*server.Options, 3)
	servers := natstest.Cluster(t, 3, func(number int, o *server.Options) { options[number] = o })
	js := kit.JetStream(t, servers[0].ClientURL())
	for i := range bystanders {
		createStream(t, js, jetstream.StreamConfig{Name: fmt.Sprintf("BYSTANDER%d", i), Replicas: 3})
	}
	works := make([]*work, streams)
	for i := range works {
		w := &work{T: t, js: js, name: fmt.Sprintf("WORK%d", i)}
		w.stream = createStream(t, js, jetstream.StreamConfig{Name: w.name, Replicas: 3, Retention: retention})
		var err error
		w.consumer, err = js.CreateConsumer(t.Context(), w.name, jetstream.ConsumerConfig{
			Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour, MaxAckPending: -1,
		})
		kit.Check(t, err)
		works[i] = w
	}
	each := func(do func(*work)) {
		var running sync.WaitGroup
		for _, w := range works {
			running.Go(func() { do(w) })
		}
		running.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}

	each(func(w *work) {
		w.lead("n0")
		w.settled = w.publishAndFetch(settled)
	})
	servers[2].Shutdown()
	servers[2].WaitForShutdown()
	each(func(w *work) {
		w.held = w.publishAndFetch(held)
		for i := range progress {
			kit.Check(t, w.held[i%held].InProgress())
		}
		for _, message := range w.settled {
			kit.Check(t, message.DoubleAck(t.Context()))
		}
	})

	publishing, end := context.WithCancel(t.Context())
	defer end()
	var publishers sync.WaitGroup
	publishers.Go(func() {
		each(func(w *work) { // Without traffic the restarted server hears from a stream's leader too late.
			for publishing.Err() == nil {
				_, _ = js.Publish(publishing, w.name, nil)
			}
		})
	})
	again, err := server.NewServer(options[2])
	kit.Check(t, err)
	again.Start()
	t.Cleanup(func() { again.Shutdown(); again.WaitForShutdown() })
	each(func(w *work) { kit.EventuallyNil(t, func() error { return w.ledBy("n0") }) })
	end()
	publishers.Wait()

	each(func(w *work) {
		w.held = append(w.held, w.publishAndFetch(1)...) // the delivery that follows the missed ones
		w.lead("n2")
	})
	for _, w := range works {
		info, err := w.consumer.Info(t.Context())
		kit.Check(t, err)
		forgotten += len(w.held) - info.NumAckPending
	}
	if retention == jetstream.LimitsPolicy {
		return countDeleted(works), forgotten
	}
	kit.Eventually(t, "streams have deleted the messages that consumers forgot", func() bool {
		deleted = countDeleted(works)
		return deleted >= forgotten
	})
	return deleted, forgotten
}

// countDeleted counts the held messages that are no longer in their streams.
func countDeleted(works []*work) (deleted int) {
	for _, w := range works {
		for _, message := range w.held {
			meta, err := message.Metadata()
			kit.Check(w.T, err)
			_, err = w.stream.GetMsg(w.Context(), meta.Sequence.Stream)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				deleted++
				continue
			}
			kit.Check(w.T, err)
		}
	}
	return deleted
}

// work is a stream, its consumer, and the messages that a client has fetched.
type work struct {
	*testing.T
	js            jetstream.JetStream
	name          string
	stream        jetstream.Stream
	consumer      jetstream.Consumer
	settled, held []jetstream.Msg
}

func createStream(
	t *testing.T,
	js jetstream.JetStream,
	config jetstream.StreamConfig,
) (stream jetstream.Stream) {
	t.Helper()
	kit.EventuallyNil(t, func() (err error) {
		stream, err = js.CreateStream(t.Context(), config)
		return err
	})
	return stream
}

func (w *work) publishAndFetch(n int) (messages []jetstream.Msg) {
	for range n {
		_, err := w.js.Publish(w.Context(), w.name, nil)
		kit.Check(w.T, err)
	}
	for len(messages) < n {
		batch, err := w.consumer.Fetch(n-len(messages), jetstream.FetchMaxWait(time.Second))
		kit.Check(w.T, err)
		for message := range batch.Messages() {
			messages = append(messages, message)
		}
	}
	return messages
}

// lead makes a server the leader of the stream and its consumer. It retries, because a server may fail to take
// over.
func (w *work) lead(name string) {
	kit.EventuallyNil(w.T, func() error {
		err := errors.Join(
			w.stepDown("STREAM.LEADER.STEPDOWN."+w.name, name),
			w.stepDown("CONSUMER.LEADER.STEPDOWN."+w.name+".worker", name),
		)
		kit.Within(kit.Patience/6, func() bool { return err != nil || w.ledBy(name) == nil })
		return errors.Join(err, w.ledBy(name))
	})
}

// stepDown requests that the leader of a group hands over to a server, unless that one leads already.
func (w *work) stepDown(request, to string) error {
	message, err := w.js.Conn().Request("$JS.API."+request,
		fmt.Appendf(nil, `{"placement":{"preferred":%q}}`, to), 2*time.Second)
	if err != nil {
		return err
	}
	var reply struct{ Error struct{ Description string } }
	if err := json.Unmarshal(message.Data, &reply); err != nil {
		return err
	}
	if text := reply.Error.Description; text != "" && !strings.Contains(text, "already leader") {
		return errors.New(text)
	}
	return nil
}

// ledBy returns an error unless the server leads stream and consumer, and the other servers follow.
func (w *work) ledBy(name string) error {
	ctx, cancel := context.WithTimeout(w.Context(), time.Second)
	defer cancel()
	stream, err := w.stream.Info(ctx)
	if err != nil {
		return err
	}
	consumer, err := w.consumer.Info(ctx)
	if err != nil {
		return err
	}
	for _, group := range []*jetstream.ClusterInfo{stream.Cluster, consumer.Cluster} {
		if group == nil || group.Leader != name {
			return fmt.Errorf("%s: %+v, expected leader %s", w.name, group, name)
		}
		for _, peer := range group.Replicas {
			if !peer.Current {
				return fmt.Errorf("%s: %s is not current", w.name, peer.Name)
			}
		}
	}
	return nil
}
