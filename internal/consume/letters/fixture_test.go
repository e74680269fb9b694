package letters_test

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/consume/letters"
	"notifier/internal/devstack"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/test/kit"
)

// fixture is a NATS server with the two streams of a worker.
type fixture struct {
	*testing.T
	server     *devstack.NATS
	connection *nats.Conn
	js         jetstream.JetStream
}

func newFixture(t *testing.T, change ...func(*jetstream.StreamConfig)) *fixture {
	t.Helper()
	t.Parallel() // each fixture has its own server
	server, err := devstack.StartNATS("127.0.0.1:0", t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { kit.Check(t, server.Close()) })
	connection, err := nats.Connect(server.URL())
	kit.Check(t, err)
	t.Cleanup(connection.Close)
	js, err := jetstream.New(connection)
	kit.Check(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "NOTIFY", Subjects: []string{"notify.>"}, Retention: jetstream.WorkQueuePolicy,
	})
	kit.Check(t, err)
	dead := jetstream.StreamConfig{Name: "NOTIFY_DEAD", Subjects: []string{"notify-dead.>"}}
	for _, f := range change {
		f(&dead)
	}
	_, err = js.CreateStream(t.Context(), dead)
	kit.Check(t, err)
	return &fixture{t, server, connection, js}
}

// letter stores a letter of notify.errors. The headers alternate names and values, and override the headers
// of an ordinary letter.
func (d *fixture) letter(id, payload string, headers ...string) uint64 {
	d.Helper()
	message := nats.NewMsg("notify-dead.errors")
	message.Header = nats.Header{
		"Notifier-Event-Id": {id}, "Notifier-Reason": {"malformed"}, "Notifier-Subject": {"notify.errors"},
		"Notifier-Time": {"2026-11-20T04:39:01.5Z"}, "Notifier-Stream-Seq": {"17"}, "Nats-Msg-Id": {"dead." + id},
	}
	for i := 0; i < len(headers); i += 2 {
		message.Header[headers[i]] = nil
	}
	for i := 0; i < len(headers); i += 2 {
		message.Header.Add(headers[i], headers[i+1])
	}
	message.Data = []byte(payload)
	ack, err := d.js.PublishMsg(d.Context(), message)
	kit.Check(d.T, err)
	return ack.Sequence
}

// raw stores a message with a header block that no client library would write.
func (d *fixture) raw(header string) {
	d.Helper()
	stream, err := d.js.Stream(d.Context(), "NOTIFY_DEAD")
	kit.Check(d.T, err)
	before := stream.CachedInfo().State.Msgs
	c, err := net.Dial("tcp", d.server.Addr())
	kit.Check(d.T, err)
	defer func() { _ = c.Close() }()
	_, err = fmt.Fprintf(c, "CONNECT {\"verbose\":false,\"headers\":true}\r\nHPUB notify-dead.x %d %d\r\n%s\r\n",
		len(header), len(header), header)
	kit.Check(d.T, err)
	kit.Eventually(d.T, "it is stored", func() bool {
		stream, err := d.js.Stream(d.Context(), "NOTIFY_DEAD")
		return err == nil && stream.CachedInfo().State.Msgs == before+1
	})
}

func (d *fixture) open() *letters.Stream {
	d.Helper()
	pattern, err := event.ParsePattern("notify.>")
	kit.Check(d.T, err)
	s, err := letters.Open(d.Context(), d.connection, "NOTIFY", pattern)
	kit.Check(d.T, err)
	return s
}

// records returns the records of all letters.
func (d *fixture) records() []outcome.Record {
	d.Helper()
	var all []outcome.Record
	kit.Check(d.T, d.open().Each(d.Context(), func(r outcome.Record) error {
		all = append(all, r)
		return nil
	}))
	return all
}

// all returns all letters.
func (d *fixture) all() []*letters.Letter {
	d.Helper()
	var all []*letters.Letter
	s := d.open()
	for _, r := range d.records() {
		letter, err := s.Get(d.Context(), r.LetterSeq)
		kit.Check(d.T, err)
		all = append(all, letter)
	}
	return all
}

// replay returns the only letter to the stream.
func (d *fixture) replay() error {
	d.Helper()
	all := d.all()
	if len(all) != 1 {
		d.Fatalf("%d letters, expected one", len(all))
	}
	return d.open().Replay(d.Context(), "notify-dead", all[0])
}

// stored returns all messages of a stream.
func (d *fixture) stored(name string) []*jetstream.RawStreamMsg {
	d.Helper()
	stream, err := d.js.Stream(d.Context(), name)
	kit.Check(d.T, err)
	var messages []*jetstream.RawStreamMsg
	state := stream.CachedInfo().State
	for seq := state.FirstSeq; seq <= state.LastSeq && state.Msgs > 0; seq++ {
		message, err := stream.GetMsg(d.Context(), seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		kit.Check(d.T, err)
		messages = append(messages, message)
	}
	return messages
}
