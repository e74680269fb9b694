package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"

	"notifier/internal/devstack"
	"notifier/internal/devstack/embedded"
)

// serverCommands are the script commands for NATS, Redis and the fake Slack, which run in the test process.
var serverCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"nats": runNATS, "stream": createStream, "stored": storedEvents, "letter": storeLetter, "outcome": storeOutcome,
	"redis": runStore, "port": setFreePort, "slack": startSlack, "recorded": storeRecorded, "consumer": createConsumer,
}

// scriptServer is NATS or Redis of a script. It keeps its content while it is stopped.
type scriptServer struct {
	name  string
	start func() error
	stop  func()
}

// command runs "nats" or "redis" with "stop" or "start".
func (s scriptServer) command(ts *testscript.TestScript, args []string) {
	switch {
	case len(args) == 1 && args[0] == "stop":
		s.stop()
	case len(args) == 1 && args[0] == "start":
		ts.Check(s.start())
	default:
		ts.Fatalf("usage: %s [stop|start]", s.name)
	}
}

// scriptServers holds the servers of each script.
var scriptServers sync.Map // serverKey to scriptServer

type serverKey struct {
	script *testscript.TestScript
	name   string
}

// runNATS starts a NATS server for the script and points NATS_URL at it. "nats stop" and "nats start" make an
// outage.
func runNATS(ts *testscript.TestScript, _ bool, args []string) {
	key := serverKey{ts, "nats"}
	if known, found := scriptServers.Load(key); found {
		known.(scriptServer).command(ts, args)
		return
	}
	server, err := devstack.StartNATS(ephemeralAddr, "")
	ts.Check(err)
	ts.Defer(func() {
		scriptServers.Delete(key)
		ts.Check(server.Close())
	})
	scriptServers.Store(key, scriptServer{name: "nats", start: server.Start, stop: server.Stop})
	ts.Setenv("NATS_URL", server.URL())
}

// runStore starts an embedded store for the script and points REDIS_URL at it. "redis stop" and "redis start"
// make an outage.
func runStore(ts *testscript.TestScript, _ bool, args []string) {
	key := serverKey{ts, "redis"}
	if known, found := scriptServers.Load(key); found {
		known.(scriptServer).command(ts, args)
		return
	}
	store := embedded.NewStore()
	ts.Check(store.StartAddr(ephemeralAddr))
	ts.Defer(func() {
		scriptServers.Delete(key)
		store.Close()
	})
	addr := store.Addr()
	restart := func() error {
		if err := devstack.Released(addr); err != nil {
			return err
		}
		return store.Restart()
	}
	scriptServers.Store(key, scriptServer{name: "redis", start: restart, stop: store.Close})
	ts.Setenv("REDIS_URL", "redis://"+addr+"/0")
}

// setFreePort sets a variable to a free port: port REDIS_PORT.
func setFreePort(ts *testscript.TestScript, _ bool, args []string) {
	_, port, err := net.SplitHostPort(devstack.FreeAddr(ephemeralAddr))
	ts.Check(err)
	ts.Setenv(args[0], port)
}

// createStream creates the stream NOTIFY as a worker would: stream SUBJECT.
func createStream(ts *testscript.TestScript, _ bool, args []string) {
	withJetStream(ts, func(ctx context.Context, js jetstream.JetStream) {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "NOTIFY", Subjects: args})
		ts.Check(err)
	})
}

// storedEvents prints each event in the stream on one line, with the named headers.
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
