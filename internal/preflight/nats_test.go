package preflight

import (
	"context"
	"crypto/tls"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/consume/feed"
	"notifier/internal/devstack"
	"notifier/test/kit"
	"notifier/test/natstest"
	"notifier/test/redistest"
)

func startNATS(t *testing.T) string {
	t.Helper()
	server, err := devstack.StartNATS("127.0.0.1:0", t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = server.Close() })
	return server.URL()
}

func at(url string) change { return func(env map[string]string) { env["NATS_URL"] = url } }

// open is the warning about a server without users, which most tests have.
const open = "nats"

const (
	stream   = "stream/NOTIFY"
	consumer = "consumer/notifier"
)

// foreign is a stream and a consumer that were not created by a worker, with the row about them.
type foreign struct {
	stream   func(*jetstream.StreamConfig)
	consumer func(*jetstream.ConsumerConfig)
	push     bool
	name     string
	state    State
	text     string
}

var foreigners = map[string]foreign{
	"as a worker creates them": {
		consumer: func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 32768 },
		name:     consumer, state: OK, text: "0 unread, 0 in flight",
	},
	"consumer with NATS's defaults": {
		name: consumer, state: Warn, text: "has max_ack_pending 1000 for all workers",
	},
	"stream discards old": {
		stream: func(s *jetstream.StreamConfig) { s.MaxMsgs, s.Discard = 10, jetstream.DiscardOld },
		name:   stream, state: Warn, text: "is bounded and discards old",
	},
	"stream loses events without a consumer": {
		stream: func(s *jetstream.StreamConfig) { s.Retention = jetstream.InterestPolicy },
		name:   stream, state: Warn, text: "keeps only events that a consumer waits for",
	},
	"stream takes other subjects": {
		stream:   func(s *jetstream.StreamConfig) { s.Subjects = []string{"other.>"} },
		consumer: func(c *jetstream.ConsumerConfig) { c.FilterSubject = "" },
		name:     stream, state: Fail, text: "takes other.>, and nothing of NATS_SUBJECT notify.>",
	},
	"stream takes too little": {
		stream:   func(s *jetstream.StreamConfig) { s.Subjects = []string{"notify.errors"} },
		consumer: func(c *jetstream.ConsumerConfig) { c.FilterSubject = "" },
		name:     stream, state: Warn, text: "which is not all of NATS_SUBJECT notify.>",
	},
	"consumer takes too much": {
		stream:   func(s *jetstream.StreamConfig) { s.Subjects = []string{"notify.>", "other.>"} },
		consumer: func(c *jetstream.ConsumerConfig) { c.FilterSubject = "" },
		name:     consumer, state: Fail, text: "which is more than NATS_SUBJECT notify.>",
	},
	"consumer gives up": {
		consumer: func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 3 },
		name:     consumer, state: Warn, text: "has max_deliver 3",
	},
	"consumer of another namespace": {
		consumer: func(c *jetstream.ConsumerConfig) { c.Metadata = map[string]string{feed.NamespaceKey: "staging"} },
		name:     consumer, state: Fail, text: `belongs to workers with REDIS_NAMESPACE "staging", and here it is "notifier"`,
	},
	"consumer pushes": {
		consumer: func(c *jetstream.ConsumerConfig) { c.DeliverSubject = "there" },
		push:     true, name: consumer, state: Fail, text: "is a push consumer",
	},
}

func TestForeignStreams(t *testing.T) {
	t.Parallel()
	for name, test := range foreigners {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := jetstream.StreamConfig{Name: "NOTIFY", Subjects: []string{"notify.>"}, Retention: jetstream.WorkQueuePolicy}
			if test.stream != nil {
				test.stream(&config)
			}
			reader := jetstream.ConsumerConfig{Durable: "notifier", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "notify.>"}
			if test.consumer != nil {
				test.consumer(&reader)
			}
			url := startNATS(t)
			js := kit.JetStream(t, url)
			_, err := js.CreateStream(t.Context(), config)
			kit.Check(t, err)
			if test.push {
				_, err = js.CreatePushConsumer(t.Context(), "NOTIFY", reader)
			} else {
				_, err = js.CreateConsumer(t.Context(), "NOTIFY", reader)
			}
			kit.Check(t, err)
			rows := found(t, natsGroup(parsed(t, at(url))))
			want(t, rows, test.name, test.state, test.text)
			if test.state != Fail {
				wantOnly(t, rows, Fail)
			}
			if test.state == OK {
				wantOnly(t, rows, Warn, open)
			}
		})
	}
}

// TestStreamsThatCannotBeCreated: no row promises a stream that the account or another stream forbids.
func TestStreamsThatCannotBeCreated(t *testing.T) {
	t.Parallel()
	const cannot = "does not exist and cannot be created: "
	for name, test := range map[string]struct {
		limits string // of the account
		change change
		other  string // subjects of another stream
		name   string
		state  State
		text   string
	}{
		"possible": {name: stream, state: OK, text: "does not exist; the first worker creates it for notify.>"},
		"a size is required": {
			limits: "max_bytes_required: true",
			name:   stream, state: Fail, text: cannot + "nats: API error: code=400 err_code=10113 description=the account requires a stream to have max_bytes; set NATS_STREAM_MAX_BYTES",
		},
		"one stream": {
			limits: "max_streams: 1",
			name:   "stream/NOTIFY_DEAD", state: Fail, text: "raise the account's max_streams: notifier needs three streams",
		},
		"little storage": {
			limits: "max_file: 100M",
			name:   "stream/NOTIFY_DEAD", state: Fail, text: "lower DEAD_LETTER_MAX_BYTES, 268435456, or raise the storage of the account",
		},
		"replicas": {
			change: func(env map[string]string) { env["NATS_REPLICAS"] = "3" },
			name:   stream, state: Fail, text: cannot + "NATS_REPLICAS is 3 without a cluster; set it to 0",
		},
		"events of another stream": {
			other: "notify.*", name: stream, state: Fail, text: cannot + "stream OTHER takes subjects of notify.>; set NATS_STREAM",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := natstest.WithAccount(t, test.limits).ClientURL()
			if test.other != "" {
				_, err := kit.JetStream(t, url).CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{test.other}})
				kit.Check(t, err)
			}
			changes := []change{at(url)}
			if test.change != nil {
				changes = append(changes, test.change)
			}
			rows := found(t, natsGroup(parsed(t, changes...)))
			want(t, rows, test.name, test.state, test.text)
			if test.state != Fail {
				wantOnly(t, rows, Fail)
			}
			want(t, rows, consumer, Skip, "there is no stream to read yet")
		})
	}
}

// TestFullStreams: warnings come before publishers get errors.
func TestFullStreams(t *testing.T) {
	t.Parallel()
	url := natstest.WithAccount(t, "max_file: 100000").ClientURL()
	js := kit.JetStream(t, url)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "NOTIFY", Subjects: []string{"notify.>"}, Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew, MaxMsgs: 20,
	})
	kit.Check(t, err)
	for range 19 {
		_, err := js.Publish(t.Context(), "notify.errors", make([]byte, 4900))
		kit.Check(t, err)
	}
	rows := found(t, natsGroup(parsed(t, at(url))))
	want(t, rows, stream, Warn, "notify.>: 19 messages, 91.7 KiB, 95% of its max_messages; a full stream refuses messages")
	want(t, rows, stream, Warn, "the account uses 91.7 KiB of its 97.7 KiB")
}

// TestOutputs: streams that exist and do not take the messages of a worker.
func TestOutputs(t *testing.T) {
	t.Parallel()
	url := startNATS(t)
	js := kit.JetStream(t, url)
	for name, subject := range map[string]string{"NOTIFY": "*.>", "NOTIFY_DEAD": "$dead.>", "NOTIFY_EVENTS": "$events.>"} {
		if name == "NOTIFY" {
			subject = "notify.>"
		}
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{strings.TrimPrefix(subject, "$")}})
		kit.Check(t, err)
	}
	dropped := func(subject string) change {
		return func(env map[string]string) { env["DROPPED_SUBJECT"] = subject }
	}
	rows := found(t, natsGroup(parsed(t, at(url), dropped("notify-dropped"))))
	want(t, rows, "stream/NOTIFY_DEAD", Fail, "takes dead.>, and not notify-dead.>; add that, or set DEAD_LETTER_SUBJECT")
	want(t, rows, "stream/NOTIFY_EVENTS", Warn, "takes events.>, and not notify-events.>")
	want(t, rows, "dropped", Warn, "no stream takes notify-dropped.>, so dropped events reach only current subscribers")

	_, err := js.UpdateStream(t.Context(), jetstream.StreamConfig{Name: "NOTIFY", Subjects: []string{"notify.>", "notify-dropped.>"}})
	kit.Check(t, err)
	want(t, found(t, natsGroup(parsed(t, at(url), dropped("notify-dropped")))), "dropped", Warn, "no worker removes them")
	_, err = js.UpdateStream(t.Context(), jetstream.StreamConfig{Name: "NOTIFY_EVENTS", Subjects: []string{"notify-events.>"}})
	kit.Check(t, err)
	want(t, found(t, natsGroup(parsed(t, at(url)))), "stream/NOTIFY_EVENTS", Warn,
		"allows no direct reads, so why and events cannot read it: nats stream edit NOTIFY_EVENTS --allow-direct")
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "DROPPED", Subjects: []string{"d.>"}})
	kit.Check(t, err)
	want(t, found(t, natsGroup(parsed(t, at(url), dropped("d")))), "dropped", OK, "stream DROPPED takes d.>")
}

// harmless matches the subjects of requests that change nothing, and of their replies.
var harmless = regexp.MustCompile(`^(\$JS\.ACK\.NOTIFY\.notifier\.0\.0\.0\.|\$JS\.API\.(INFO$|STREAM\.(INFO\.|NAMES$)|CONSUMER\.INFO\.|DIRECT\.GET\.)|\$JS\.EVENT\.ADVISORY\.|_NOTIFIER\.)`)

// TestCheckPublishesNothing subscribes to everything, before there are streams and after.
func TestCheckPublishesNothing(t *testing.T) {
	t.Parallel()
	url := startNATS(t)
	js := kit.JetStream(t, url)
	s := parsed(t, at(url), func(env map[string]string) { env["DROPPED_SUBJECT"] = "notify-dropped" })
	look := func() {
		heard := make(chan *nats.Msg, 1000)
		subscription, err := js.Conn().ChanSubscribe(">", heard)
		kit.Check(t, err)
		kit.Check(t, js.Conn().Flush())
		wantOnly(t, found(t, natsGroup(s)), Fail)
		kit.Check(t, subscription.Drain())
		kit.Eventually(t, "all is heard", func() bool { return !subscription.IsValid() })
		close(heard)
		requests := 0
		for message := range heard {
			requests++
			if !harmless.MatchString(message.Subject) {
				t.Errorf("check publishes to %s", message.Subject)
			}
		}
		if requests < 5 {
			t.Errorf("%d messages were heard, expected those of check", requests)
		}
	}
	look()
	for name, subject := range map[string]string{"NOTIFY": "notify.>", "NOTIFY_DEAD": "notify-dead.>", "NOTIFY_EVENTS": "notify-events.>"} {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject}, AllowDirect: true})
		kit.Check(t, err)
	}
	look()
}

// restricted starts a server with one user, who may publish only to these subjects.
func restricted(t *testing.T, publish ...string) string {
	t.Helper()
	user := &server.User{Username: "me", Password: secret, Permissions: &server.Permissions{
		Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: []string{"_NOTIFIER.>"}},
	}}
	s := natstest.Server(t, &server.Options{JetStream: true, StoreDir: t.TempDir(), Users: []*server.User{user}})
	return strings.Replace(s.ClientURL(), "nats://", "nats://me:"+secret+"@", 1)
}

// TestUsersOfNATS: a denied request is reported at once, and the other checks run.
func TestUsersOfNATS(t *testing.T) {
	t.Parallel()
	began := time.Now()
	rows := found(t, natsGroup(parsed(t, at(restricted(t, "$JS.API.STREAM.INFO.NOTIFY_DEAD")))))
	want(t, rows, "nats", OK, "no TLS")
	want(t, rows, stream, Fail, `"$JS.API.STREAM.INFO.NOTIFY"; give the user the permissions in docs/security.md`)
	want(t, rows, "stream/NOTIFY_DEAD", OK, "the first worker creates it for notify-dead.>, if its account allows that")
	want(t, rows, "stream/NOTIFY_EVENTS", Warn, "give the user the permissions")
	if took := time.Since(began); took > Timeout {
		t.Errorf("it took %s", took)
	}
	wrong := strings.Replace(restricted(t), secret, secret+"2", 1)
	want(t, found(t, natsGroup(parsed(t, at(wrong)))), "nats", Fail, "Authorization Violation; check the user in NATS_URL")
}

// TestDeniedAcknowledgements: nothing else shows that a worker's acknowledgements would be denied.
func TestDeniedAcknowledgements(t *testing.T) {
	t.Parallel()
	url := restricted(t, "$JS.API.>", "$JS.ACK.NOTIFY.other.>")
	connection, err := nats.Connect(url, nats.CustomInboxPrefix("_NOTIFIER.NOTIFY.worker"))
	kit.Check(t, err)
	t.Cleanup(connection.Close)
	js, err := jetstream.New(connection)
	kit.Check(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "NOTIFY", Subjects: []string{"notify.>"},
	})
	kit.Check(t, err)
	const denied = `"$JS.ACK.NOTIFY.notifier.>"; give the user the permissions in docs/security.md`
	rows := found(t, natsGroup(parsed(t, at(url))))
	want(t, rows, consumer, Fail, denied)
	want(t, rows, consumer, OK, "the first worker creates it")
	_, err = js.CreateConsumer(t.Context(), "NOTIFY", jetstream.ConsumerConfig{
		Durable: "notifier", AckPolicy: jetstream.AckExplicitPolicy,
	})
	kit.Check(t, err)
	rows = found(t, natsGroup(parsed(t, at(url))))
	want(t, rows, consumer, Fail, denied)
	want(t, rows, consumer, OK, "0 unread, 0 in flight")
	wantOnly(t, rows, Fail, consumer)
}

// TestSecondConsumer: only a work queue refuses a second consumer.
func TestSecondConsumer(t *testing.T) {
	t.Parallel()
	for retention, state := range map[jetstream.RetentionPolicy]State{
		jetstream.WorkQueuePolicy: Warn, jetstream.LimitsPolicy: OK,
	} {
		url := startNATS(t)
		js := kit.JetStream(t, url)
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: "NOTIFY", Subjects: []string{"notify.>"}, Retention: retention,
		})
		kit.Check(t, err)
		want(t, found(t, natsGroup(parsed(t, at(url)))), consumer, OK, "the first worker creates it")
		_, err = js.CreateConsumer(t.Context(), "NOTIFY", jetstream.ConsumerConfig{Durable: "notifier"})
		kit.Check(t, err)
		other := func(env map[string]string) { env["NATS_CONSUMER"] = "other" }
		text := "does not exist; the first worker creates it"
		if state == Warn {
			text = "does not exist, and the work queue has another consumer"
		}
		want(t, found(t, natsGroup(parsed(t, at(url), other))), "consumer/other", state, text)
	}
}

// TestConnectionsToNATS: faults of the address and of TLS.
func TestOldNATS(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"2.10.27": true, "1.99.0": true, "2.11.0": false, "2.12.1-beta": false, "3.0.0": false, "": false, "dev": false,
	} {
		if isTooOld(version) != want {
			t.Errorf("%q: %t, expected %t", version, !want, want)
		}
	}
}

func TestConnectionsToNATS(t *testing.T) {
	t.Parallel()
	plain := startNATS(t)
	cert, key := kit.Certificate(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	kit.Check(t, err)
	first := natstest.Server(t, &server.Options{
		JetStream: true, StoreDir: t.TempDir(), TLS: true, TLSTimeout: 2, TLSHandshakeFirst: true,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}).Addr().String()
	ca := func(env map[string]string) { env["NATS_TLS_CA"] = cert }
	client := func(env map[string]string) { env["NATS_TLS_CERT"], env["NATS_TLS_KEY"] = cert, key }
	off := natstest.Server(t, &server.Options{}).ClientURL()
	for name, test := range map[string]struct {
		changes []change
		name    string
		state   State
		text    string
	}{
		"no users":            {[]change{at(plain)}, "nats", Warn, "requires no user: anyone in the network can read and delete events"},
		"Redis":               {[]change{at("nats://" + redistest.StartProcess(t).Addr)}, "nats", Fail, "it may be the port of Redis"},
		"no TLS":              {[]change{at(strings.Replace(plain, "nats://", "tls://", 1))}, "nats", Fail, "the server has no TLS: use nats:// in NATS_URL"},
		"TLS first":           {[]change{at("nats://" + first)}, "nats", Fail, "if it expects TLS first (handshake_first), use tls:// in NATS_URL"},
		"another authority":   {[]change{at("tls://" + first)}, "nats", Fail, "set NATS_TLS_CA to the authority that signed the server's certificate"},
		"a certificate":       {[]change{at("tls://" + first), ca, client}, "nats", OK, "TLS 1.3"},
		"without JetStream":   {[]change{at(off)}, stream, Fail, "JetStream is off: start the server with it (nats-server -js)"},
		"a server of no name": {[]change{at("nats://127.0.0.1:1")}, "nats", Fail, "check NATS_URL, and whether the server is running"},
	} {
		t.Run(name, func(t *testing.T) {
			want(t, found(t, natsGroup(parsed(t, test.changes...))), test.name, test.state, test.text)
		})
	}
}

// TestClusters: a cluster keeps three replicas.
func TestClusters(t *testing.T) {
	t.Parallel()
	url := natstest.Cluster(t, 3, nil)[0].ClientURL()
	replicas := func(env map[string]string) { env["NATS_REPLICAS"] = "3" }
	kit.Eventually(t, "the cluster can keep three replicas", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), Deadline)
		defer cancel()
		g := natsGroup(parsed(t, at(url), replicas))
		for _, row := range g.collect(ctx, g.start(ctx)) {
			if row.Name == stream {
				return row.State == OK
			}
		}
		return false
	})
}
