package preflight

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/consume/feed"
	"notifier/internal/consume/letters"
	"notifier/internal/denial"
	"notifier/internal/event"
	"notifier/internal/outcome/recent"
	"notifier/internal/redact"
	"notifier/internal/settings"
	"notifier/internal/snapshot"
	"notifier/internal/streams"
	"notifier/internal/term"
)

// natsCheck is the state of the checks of NATS, which run one at a time.
type natsCheck struct {
	settings   settings.Settings
	connection *nats.Conn
	js         jetstream.JetStream
	watch      *denial.Watch
	stream     *jetstream.StreamInfo // NATS_STREAM; nil if missing or unknown

	account *jetstream.AccountInfo // nil if unknown
	asked   bool                   // for the account
}

func natsGroup(s settings.Settings) group {
	n := &natsCheck{settings: s, watch: denial.NewWatch()}
	name := s.NATS.Stream
	dead := output{
		config:      letters.Config(name, s.DeadLetter, s.DeadLetterBytes),
		fault:       Fail,
		sizeSetting: letters.SizeSetting,
		rename:      "set DEAD_LETTER_SUBJECT to another subject",
	}
	place, placeError := recent.NewPlace(name, s.NATS.Pattern)
	records := output{
		config: place.Config(),
		fault:  Warn,
		rename: "set NATS_STREAM to another name",
		direct: place.DirectGet(),
	}
	records.config.MaxBytes = recent.MinBytes // a worker creates a smaller stream if there is no room
	g := group{
		checks: []check{
			{"nats", n.connect},
			{"stream/" + name, n.checkStream},
			{"consumer/" + s.NATS.Consumer, n.checkConsumer},
			{"stream/" + dead.config.Name, func(ctx context.Context) []Row {
				return n.checkOutput(ctx, dead)
			}},
			{"stream/" + recent.StreamName(name), func(ctx context.Context) []Row {
				if placeError != nil {
					return one(Warn, "%v", placeError)
				}
				return n.checkOutput(ctx, records)
			}},
		},
		end: func() {
			if n.connection != nil {
				n.connection.Close()
			}
		},
	}
	if s.Dropped != "" {
		g.checks = append(g.checks, check{"dropped", n.checkDropped})
	}
	return g
}

// NATS 2.11 is the oldest version with batched direct gets, which read the recorded outcomes.
const minMajor, minMinor = 2, 11

// isTooOld reports whether a server is older than minMajor.minMinor. An unknown form of version is not.
func isTooOld(version string) bool {
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 {
		return false
	}
	return major < minMajor || major == minMajor && minor < minMinor
}

// connect connects as a worker does.
func (n *natsCheck) connect(context.Context) []Row {
	s := n.settings.NATS
	each := Timeout / time.Duration(len(strings.Split(s.URL, ",")))
	onError := func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if !feed.IsProbe(err) { // it would end the next request
			n.watch.Denied(err)
		}
	}
	options := append(s.WorkerOptions("notifier check"),
		nats.Timeout(each), nats.NoReconnect(), nats.ErrorHandler(onError))
	connection, err := s.Connect(s.URL, options...)
	if err != nil {
		return stop("no connection to %s: %s", s.Servers(), advised(err, natsAdvice(err)))
	}
	n.connection = connection
	if n.js, err = jetstream.New(connection); err != nil {
		return stop("%v", err)
	}
	server := redact.Servers([]string{connection.ConnectedUrl()})
	if version := connection.ConnectedServerVersion(); isTooOld(version) {
		return one(Fail, "%s, version %s; upgrade to %d.%d or later", server, version, minMajor, minMinor)
	}
	if !connection.AuthRequired() && !s.HasCertificate() { // a certificate may be the user
		return one(Warn, "%s requires no user: anyone in the network can read and delete events; "+
			"set it up as in docs/security.md", server)
	}
	security := "no TLS"
	if state, err := connection.TLSConnectionState(); err == nil {
		security = tls.VersionName(state.Version)
	}
	return one(OK, "%s, version %s, %s", server, connection.ConnectedServerVersion(), security)
}

// request makes one request, which ends with the cause if the server denies it.
func (n *natsCheck) request(ctx context.Context, do func(context.Context) error) error {
	ctx, end := n.watch.Context(ctx)
	defer end()
	err := do(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// failed reports the error of a request. Only a denied one leaves the other checks a chance.
func failed(state State, err error) []Row {
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		return one(state, "%v; give the user the permissions in docs/security.md", err)
	case errors.Is(err, context.DeadlineExceeded):
		return stop("no reply within %s", Timeout)
	}
	return stop("%s", advised(err, natsAdvice(err)))
}

func (n *natsCheck) lookUp(ctx context.Context, name string) (info *jetstream.StreamInfo, err error) {
	err = n.request(ctx, func(ctx context.Context) error {
		stream, err := n.js.Stream(ctx, name)
		if err == nil {
			info = stream.CachedInfo()
		}
		return err
	})
	return info, err
}

func (n *natsCheck) checkStream(ctx context.Context) []Row {
	s := n.settings.NATS
	info, err := n.lookUp(ctx, s.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return n.missing(ctx, output{
			config:      feed.Config(s.Stream, s.Pattern.String(), s.StreamBytes, 0),
			fault:       Fail,
			sizeSetting: feed.SizeSetting,
			rename:      "set NATS_STREAM to that stream, or change NATS_SUBJECT",
		})
	}
	if err != nil {
		return failed(Fail, err)
	}
	n.stream = info
	faults := faultRows("stream "+s.Stream, n.reading().StreamFaults())
	return slices.Concat(faults, contents(info), n.accountRow(ctx))
}

// accountRow warns of an account without room. Most users may not read their account.
func (n *natsCheck) accountRow(ctx context.Context) []Row {
	account := n.limits(ctx)
	if account == nil || account.Limits.MaxStore <= 0 {
		return nil
	}
	used, limit := account.Store, uint64(account.Limits.MaxStore)
	if float64(used) < snapshot.NearlyFull*float64(limit) {
		return nil
	}
	return one(Warn, "the account uses %s of its %s; a full one refuses events: raise its storage",
		term.Size(used), term.Size(limit))
}

func (n *natsCheck) reading() feed.Reading {
	return feed.Reading{
		Subject:   n.settings.NATS.Pattern.String(),
		Namespace: n.settings.Store.Namespace,
		Held:      feed.BatchesHeld * n.settings.BatchSize,
		Stream:    n.stream.Config,
	}
}

// faultRows returns the faults by which a worker judges a stream or consumer. Each begins with its name.
func faultRows(name string, faults []feed.Fault) (rows []Row) {
	states := map[feed.Severity]State{feed.Remark: OK, feed.Risk: Warn, feed.Withhold: Warn, feed.Wait: Fail, feed.Refuse: Fail}
	for _, fault := range faults {
		problem := strings.TrimPrefix(fault.Problem, name+" ")
		rows = append(rows, one(states[fault.Severity], "%s", advised(problem, fault.Advice))...)
	}
	return rows
}

// contents describes a stream that exists. It warns if the stream is about to refuse messages.
func contents(info *jetstream.StreamInfo) []Row {
	state, config := info.State, info.Config
	text := fmt.Sprintf("%s: %s, %s", strings.Join(config.Subjects, ", "), term.Count(state.Msgs, "message"),
		term.Size(state.Bytes))
	share, bound := snapshot.Stream{
		Bytes: state.Bytes, MaxBytes: config.MaxBytes, Messages: state.Msgs, MaxMessages: config.MaxMsgs,
	}.Used()
	if share >= snapshot.NearlyFull && config.Discard == jetstream.DiscardNew {
		return one(Warn, "%s, %.0f%% of its max_%s; a full stream refuses messages: raise it",
			text, share*100, bound)
	}
	return one(OK, "%s", text)
}

// missing returns a row that tells whether a worker could create the stream, as far as the subjects of other
// streams and the limits of the account show.
func (n *natsCheck) missing(ctx context.Context, o output) []Row {
	const cannot = "does not exist and cannot be created: "
	subject, replicas := o.config.Subjects[0], n.settings.NATS.Replicas
	if other, err := n.owner(ctx, subject); err == nil {
		return one(o.fault, cannot+"stream %s takes subjects of %s; %s", other, subject, o.rename)
	}
	// A single leaf node reports a cluster with its own name.
	cluster := n.connection.ConnectedClusterName()
	clustered := cluster != "" && cluster != n.connection.ConnectedServerName()
	if replicas > 1 && !clustered {
		return one(o.fault, cannot+"NATS_REPLICAS is %d without a cluster; set it to 0", replicas)
	}
	account := n.limits(ctx)
	if account == nil {
		return one(OK, "does not exist; the first worker creates it for %s, if its account allows that", subject)
	}
	maker := &streams.Maker{Replicas: replicas, SizeSetting: o.sizeSetting}
	if err := maker.Forecast(account, o.config, clustered); err != nil {
		return one(o.fault, cannot+"%v", err)
	}
	return one(OK, "does not exist; the first worker creates it for %s", subject)
}

// owner returns the stream that takes a subject.
func (n *natsCheck) owner(ctx context.Context, subject string) (stream string, err error) {
	err = n.request(ctx, func(ctx context.Context) (err error) {
		stream, err = n.js.StreamNameBySubject(ctx, subject)
		return err
	})
	return stream, err
}

// limits returns the account, or nil if the user may not read it. Each forecast counts its stream in it.
func (n *natsCheck) limits(ctx context.Context) *jetstream.AccountInfo {
	if !n.asked {
		n.asked = true
		_ = n.request(ctx, func(ctx context.Context) (err error) { // stays unknown
			n.account, err = n.js.AccountInfo(ctx)
			return err
		})
	}
	return n.account
}

func (n *natsCheck) checkConsumer(ctx context.Context) []Row {
	if n.stream == nil {
		return one(Skip, "there is no stream to read yet")
	}
	return append(n.checkAcknowledgements(ctx), n.consumerRows(ctx)...)
}

func (n *natsCheck) checkAcknowledgements(ctx context.Context) []Row {
	stream, consumer := n.stream.Config.Name, n.settings.NATS.Consumer
	if err := (feed.Connection{Conn: n.connection}).MayAcknowledge(ctx, stream, consumer); err != nil {
		return failed(Fail, err)
	}
	return nil
}

// consumerRows judges the consumer, or says that a worker will create it.
func (n *natsCheck) consumerRows(ctx context.Context) []Row {
	var info *jetstream.ConsumerInfo
	err := n.request(ctx, func(ctx context.Context) (err error) {
		info, err = feed.LookUp(ctx, n.js, n.stream.Config.Name, n.settings.NATS.Consumer)
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound) && n.stream.State.Consumers > 0 &&
		n.stream.Config.Retention == jetstream.WorkQueuePolicy:
		return one(Warn, "does not exist, and the work queue has another consumer: "+
			"NATS refuses a second one for the same subjects; %s", feed.OtherConsumerAdvice)
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return one(OK, "does not exist; the first worker creates it")
	case err != nil:
		return failed(Fail, err)
	}
	rows := faultRows("consumer "+info.Name, n.reading().ConsumerFaults(info))
	return append(rows, one(OK, "%d unread, %d in flight", info.NumPending, info.NumAckPending)...)
}

// output is a stream to which workers publish.
type output struct {
	config      jetstream.StreamConfig // with which a worker creates it
	fault       State                  // of the row about a fault
	sizeSetting string                 // the variable for its size; may be empty
	rename      string                 // advice if another stream is in the way
	direct      string                 // receives requests for single messages; empty if there are none
}

func (n *natsCheck) checkOutput(ctx context.Context, o output) []Row {
	info, err := n.lookUp(ctx, o.config.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return n.missing(ctx, o)
	}
	if err != nil {
		return failed(o.fault, err)
	}
	wanted, taken := o.config.Subjects[0], info.Config.Subjects
	if !slices.ContainsFunc(taken, func(subject string) bool { return event.Covers(subject, wanted) }) {
		return one(o.fault, "takes %s, and not %s; add that, or %s", strings.Join(taken, ", "), wanted, o.rename)
	}
	if o.direct != "" && !info.Config.AllowDirect {
		return one(o.fault, "allows no direct reads, so why and events cannot read it: "+
			"nats stream edit %s --allow-direct", o.config.Name)
	}
	if o.direct != "" {
		err := n.request(ctx, func(ctx context.Context) error {
			_, err := n.connection.RequestWithContext(ctx, o.direct, []byte(`{"seq":1}`))
			return err
		})
		if errors.Is(err, nats.ErrPermissionViolation) {
			return failed(o.fault, err)
		}
	}
	return contents(info)
}

func (n *natsCheck) checkDropped(ctx context.Context) []Row {
	subject := n.settings.Dropped + ".>"
	stream, err := n.owner(ctx, subject)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return one(Warn, "no stream takes %s, so dropped events reach only current subscribers; create one: "+
			"nats stream add DROPPED --subjects '%s' --max-age 7d --defaults", subject, subject)
	case err != nil:
		return one(Skip, "unknown if a stream takes %s: %v", subject, err)
	case stream == n.settings.NATS.Stream:
		return one(Warn, "stream %s takes %s, and no worker removes them; use another stream", stream, subject)
	}
	return one(OK, "stream %s takes %s", stream, subject)
}

// natsAdvice returns the remedy for an error, or "".
func natsAdvice(err error) string {
	const noJetStream = "JetStream is off: " + feed.JetStreamAdvice
	for _, known := range []struct {
		err    error
		advice string
	}{
		{nats.ErrAuthorization, "check the user in NATS_URL, NATS_CREDS_FILE and NATS_NKEY_FILE"},
		{nats.ErrNoServers, "check NATS_URL, and whether the server is running"},
		{nats.ErrTimeout, "check NATS_URL, and whether the server is running"},
		{os.ErrDeadlineExceeded, "check NATS_URL: no NATS server greets there; it may be the port of Redis"},
		{nats.ErrSecureConnRequired, "use tls:// in NATS_URL, and NATS_TLS_CA for a private authority"},
		{nats.ErrSecureConnWanted, "the server has no TLS: use nats:// in NATS_URL, and no NATS_TLS_ settings"},
		{nats.ErrNoResponders, noJetStream},
		{jetstream.ErrJetStreamNotEnabled, noJetStream},
		{jetstream.ErrJetStreamNotEnabledForAccount, noJetStream},
	} {
		if errors.Is(err, known.err) {
			return known.advice
		}
	}
	return natsAddress.advice(err)
}
