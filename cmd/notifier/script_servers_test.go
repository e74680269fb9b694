package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"

	"notifier/internal/devstack"
)

// serverCommands are the scripts' commands about NATS, Redis and the fake Slack, all of which run in the
// test's process.
var serverCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"nats": startNATS, "stream": createStream, "stored": storedEvents, "letter": storeLetter, "outcome": storeOutcome,
	"redis": startStore, "slack": startSlack, "recorded": storeRecorded,
}

// startNATS starts a NATS server for the script and points NATS_URL at it.
func startNATS(ts *testscript.TestScript, _ bool, _ []string) {
	server, err := devstack.StartNATS(ephemeralAddr, "")
	ts.Check(err)
	ts.Defer(func() { ts.Check(server.Close()) })
	ts.Setenv("NATS_URL", server.URL())
	ts.Setenv("NATS_SERVER", server.Addr())
}

// createStream creates the stream NOTIFY as a worker would: stream SUBJECT.
func createStream(ts *testscript.TestScript, _ bool, args []string) {
	withJetStream(ts, func(ctx context.Context, js jetstream.JetStream) {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "NOTIFY", Subjects: args})
		ts.Check(err)
	})
}

// storedEvents shows on stdout what is in the stream, a line per event, with the headers of these names.
func storedEvents(ts *testscript.TestScript, _ bool, args []string) {
	withJetStream(ts, func(ctx context.Context, js jetstream.JetStream) {
		stream, err := js.Stream(ctx, "NOTIFY")
		ts.Check(err)
		info, err := stream.Info(ctx)
		ts.Check(err)
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq && info.State.Msgs > 0; seq++ {
			message, err := stream.GetMsg(ctx, seq)
			ts.Check(err)
			text := message.Subject
			for _, name := range args {
				text += fmt.Sprintf(" %s=%q", name, message.Header.Values(name))
			}
			_, err = ts.Stdout().Write([]byte(text + " " + string(message.Data) + "\n"))
			ts.Check(err)
		}
	})
}

// storeLetter puts a dead letter where a worker of NATS_STREAM would, with further headers or others: letter
// errors malformed e-1 Notifier-Detail='broken JSON'.
func storeLetter(ts *testscript.TestScript, _ bool, args []string) {
	letter := deadLetter(args[0], args[1], args[2])
	for _, header := range args[3:] {
		name, value, _ := strings.Cut(header, "=")
		letter.Header.Set(name, value)
	}
	stream := cmp.Or(ts.Getenv("NATS_STREAM"), "NOTIFY")
	letter.Subject = strings.ToLower(stream) + "-dead." + args[0]
	withJetStream(ts, func(ctx context.Context, js jetstream.JetStream) {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: stream + "_DEAD", Subjects: []string{strings.ToLower(stream) + "-dead.>"}})
		ts.Check(err)
		_, err = js.PublishMsg(ctx, letter)
		ts.Check(err)
	})
}

// storeOutcome records what became of an event as a worker does, of that with a sequence in the stream:
// outcome errors e-1 17 '{"outcome":"sent","channel":"#alerts"}'.
func storeOutcome(ts *testscript.TestScript, _ bool, args []string) {
	record := map[string]any{}
	ts.Check(json.Unmarshal([]byte(args[3]), &record))
	seq, err := strconv.Atoi(args[2])
	ts.Check(err)
	record["time"], record["category"], record["event_id"], record["stream_seq"] = time.Now(), args[0], args[1], seq
	payload, err := json.Marshal(record)
	ts.Check(err)
	withJetStream(ts, func(ctx context.Context, js jetstream.JetStream) {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "NOTIFY_EVENTS", Subjects: []string{"notify-events.>"}, AllowDirect: true})
		ts.Check(err)
		_, err = js.Publish(ctx, "notify-events."+args[0], payload)
		ts.Check(err)
	})
}

func withJetStream(ts *testscript.TestScript, do func(ctx context.Context, js jetstream.JetStream)) {
	connection, err := nats.Connect(ts.Getenv("NATS_URL"))
	ts.Check(err)
	defer connection.Close()
	js, err := jetstream.New(connection)
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	do(ctx, js)
}
