package preflight

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"notifier/internal/devstack"
	"notifier/internal/settings"
	"notifier/internal/snapshot"
	"notifier/internal/status/report"
	"notifier/test/kit"
	"notifier/test/redistest"
)

func TestMain(m *testing.M) {
	kit.Overlap(8)
	kit.QuietRedis()
	goleak.VerifyTestMain(m, kit.NATSServerEnds()...)
}

// secret is in every URL with a password and in every token. No row may contain it.
const secret = "hunter2marker"

// change changes the settings of a test.
type change func(env map[string]string)

// parsed returns the settings of a worker with a change to the defaults.
func parsed(t *testing.T, changes ...change) settings.Settings {
	t.Helper()
	env := map[string]string{}
	env["SLACK_BOT_TOKEN"], env["SLACK_CHANNEL"] = "xoxb-"+secret, "C0123"
	for _, change := range changes {
		change(env)
	}
	s, err := settings.From(env)
	kit.Check(t, err)
	t.Cleanup(func() { _ = s.Store.Redis.Close() })
	return s
}

// found runs the checks of one group.
func found(t *testing.T, g group) []Row {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Deadline)
	defer cancel()
	return checked(t, g.collect(ctx, g.start(ctx)))
}

// checked expects rows that can be shown.
func checked(t *testing.T, rows []Row) []Row {
	t.Helper()
	for _, row := range rows {
		if strings.Contains(row.Message, secret) {
			t.Errorf("a secret is shown: %+v", row)
		}
		if row.Name == "" || row.State == "" || row.Message == "" {
			t.Errorf("incomplete: %+v", row)
		}
	}
	return rows
}

// want expects a row with this text.
func want(t *testing.T, rows []Row, name string, state State, text string) {
	t.Helper()
	for _, row := range rows {
		if row.Name == name && row.State == state && strings.Contains(row.Message, text) {
			return
		}
	}
	t.Errorf("no row %s %s %q in %+v", name, state, text, rows)
}

// wantOnly expects only these checks to have rows with this state.
func wantOnly(t *testing.T, rows []Row, state State, names ...string) {
	t.Helper()
	for _, row := range rows {
		if row.State == state && !strings.Contains(" "+strings.Join(names, " ")+" ", " "+row.Name+" ") {
			t.Errorf("unexpected: %+v", row)
		}
	}
}

// reports is a reader of heartbeats with one result.
type reports struct {
	hashes []string
	err    error
}

func (r reports) Replicas(context.Context) (found []report.Replica, err error) {
	for _, hash := range r.hashes {
		replica := report.Replica{Snapshot: snapshot.Snapshot{Settings: snapshot.Settings{Hash: hash}}}
		replica.Silent = hash == "silent"
		found = append(found, replica)
	}
	return found, r.err
}

func TestWorkersWithOtherSettings(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		running reports
		state   State
		text    string
	}{
		{reports{}, OK, "no worker is running"},
		{reports{hashes: []string{"91ab", "silent"}}, OK, "1 worker, none with other settings (91ab)"},
		{reports{hashes: []string{"91ab", "91ab"}}, OK, "2 workers, none with other settings (91ab)"},
		{reports{hashes: []string{"91ab", "6f1c", "6f1c"}}, Warn, "settings differ in 2 of 3 workers (6f1c, these are 91ab)"},
		{reports{err: errors.New("nonsense in {notifier}:replicas")}, Skip, "unknown: nonsense"},
	} {
		rows := replicas(t.Context(), Config{Hash: "91ab", Replicas: test.running})
		if len(rows) != 1 || rows[0].State != test.state || !strings.HasPrefix(rows[0].Message, test.text) {
			t.Errorf("%+v, expected %s %q", rows, test.state, test.text)
		}
	}
}

// neighbours starts NATS, Redis and Slack, and returns settings for them.
func neighbours(t *testing.T) change {
	t.Helper()
	slack, err := devstack.StartSlack("127.0.0.1:0")
	kit.Check(t, err)
	t.Cleanup(func() { _ = slack.Close() })
	bus, store := startNATS(t), redistest.Start(t).URL()
	return func(env map[string]string) {
		env["NATS_URL"], env["REDIS_URL"], env["SLACK_API_URL"] = bus, store, slack.APIURL()
	}
}

// TestOneNeighbourIsDown: its check fails and the rest of its checks is skipped. The others are not affected.
func TestOneNeighbourIsDown(t *testing.T) {
	t.Parallel()
	healthy := neighbours(t)
	nobody := kit.FreeAddr(t)
	for name, test := range map[string]struct {
		change change
		text   string
		skips  []string
	}{
		"nats": {
			func(env map[string]string) { env["NATS_URL"] = "nats://me:" + secret + "@" + nobody },
			"no connection to nats://" + nobody + ": nats: no servers available for connection; check NATS_URL",
			[]string{"stream/NOTIFY", "consumer/notifier", "stream/NOTIFY_DEAD", "stream/NOTIFY_EVENTS"},
		},
		"redis": {
			func(env map[string]string) { env["REDIS_URL"] = "redis://me:" + secret + "@" + nobody },
			"connection refused; check REDIS_URL",
			[]string{"redis/version", "redis/scripts", "redis/eviction", "redis/durability", "replicas"},
		},
		"slack": {
			func(env map[string]string) { env["SLACK_API_URL"] = "http://me:" + secret + "@" + nobody + "/" },
			"unavailable: connection_refused; check the network",
			[]string{"slack/scopes", "slack/channels"},
		},
	} {
		rows := checked(t, Run(t.Context(), Config{Settings: parsed(t, healthy, test.change), Replicas: reports{}}))
		want(t, rows, name, Fail, test.text)
		wantOnly(t, rows, Fail, name)
		for _, skipped := range test.skips {
			want(t, rows, skipped, Skip, "not checked, because "+name+" failed")
		}
	}
}

// silent returns the address of a server that takes connections and never sends a byte.
func silent(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Check(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

// TestAllNeighboursHang: Run ends within its deadline, with one failure for each neighbour.
func TestAllNeighboursHang(t *testing.T) {
	t.Parallel()
	s := parsed(t, func(env map[string]string) {
		env["NATS_URL"] = "nats://" + silent(t) + ",nats://" + silent(t) + ",nats://" + silent(t)
		env["REDIS_URL"], env["SLACK_API_URL"] = "redis://"+silent(t), "http://"+silent(t)+"/"
	})
	began := time.Now()
	rows := checked(t, Run(t.Context(), Config{Settings: s, Replicas: reports{}}))
	if took := time.Since(began); took > Deadline+2*time.Second {
		t.Errorf("it took %s", took)
	}
	for _, name := range []string{"nats", "redis", "slack"} {
		want(t, rows, name, Fail, "")
	}
	wantOnly(t, rows, Fail, "nats", "redis", "slack")
}

// TestACheckThatIgnoresItsContext does not keep Run.
func TestACheckThatIgnoresItsContext(t *testing.T) {
	t.Parallel()
	stuck := make(chan struct{})
	defer close(stuck)
	g := group{checks: []check{{"first", func(context.Context) []Row { <-stuck; return nil }}}}
	ctx, cancel := context.WithCancel(t.Context())
	results := g.start(ctx)
	cancel()
	want(t, g.collect(ctx, results), "first", Fail, "no reply within 10s")
}
