//go:build !production

package main

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"

	"notifier/internal/devstack"
)

// devstackCommands are the scripts' commands that need the embedded servers.
func devstackCommands() map[string]func(ts *testscript.TestScript, neg bool, args []string) {
	return map[string]func(ts *testscript.TestScript, neg bool, args []string){
		"nats": startNATS, "stream": createStream, "stored": storedEvents, "letter": storeLetter,
		"redis": startStore, "slack": startSlack,
	}
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

// storedEvents shows on stdout what is in the stream, a line per event.
func storedEvents(ts *testscript.TestScript, _ bool, _ []string) {
	withJetStream(ts, func(ctx context.Context, js jetstream.JetStream) {
		stream, err := js.Stream(ctx, "NOTIFY")
		ts.Check(err)
		info, err := stream.Info(ctx)
		ts.Check(err)
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq && info.State.Msgs > 0; seq++ {
			message, err := stream.GetMsg(ctx, seq)
			ts.Check(err)
			_, err = ts.Stdout().Write([]byte(message.Subject + " " + string(message.Data) + "\n"))
			ts.Check(err)
		}
	})
}

// storeLetter puts a dead letter where a worker would, with further headers or others: letter errors malformed e-1
// Notifier-Detail='broken JSON'.
func storeLetter(ts *testscript.TestScript, _ bool, args []string) {
	letter := deadLetter(args[0], args[1], args[2])
	for _, header := range args[3:] {
		name, value, _ := strings.Cut(header, "=")
		letter.Header.Set(name, value)
	}
	withJetStream(ts, func(ctx context.Context, js jetstream.JetStream) {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "NOTIFY_DEAD", Subjects: []string{"notify-dead.>"}})
		ts.Check(err)
		_, err = js.PublishMsg(ctx, letter)
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
