package preflight

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/settings"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// TestRedisThatIsFull is a failure with the advice for it.
func TestRedisThatIsFull(t *testing.T) {
	t.Parallel()
	full := redistest.StartProcess(t, "--maxmemory-policy", "noeviction")
	client := kit.OpenRedis(t, full.URL())
	kit.Check(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	wantFinding(t, redisFindings(t, full.URL(), true), Fail, "it is full: give it more memory")
}

// TestMistakesInRedisURL: what only the server can say.
func TestMistakesInRedisURL(t *testing.T) {
	t.Parallel()
	plain := redistest.StartProcess(t, "--databases", "4")
	wantFinding(t, redisFindings(t, "redis://"+plain.Addr+"/9", true), Fail, "REDIS_URL names a database that is not there")
	wantFinding(t, redisFindings(t, "rediss://"+plain.Addr, true), Fail, "redis:// in REDIS_URL")
}

// TestServersOfTheOtherKind: the address of NATS in REDIS_URL, and of Redis in NATS_URL.
func TestServersOfTheOtherKind(t *testing.T) {
	t.Parallel()
	plain := redistest.StartProcess(t)
	asRedis := strings.Replace(startNATS(t), "nats://", "redis://", 1)
	wantFinding(t, redisFindings(t, asRedis, true), Fail, "that is a NATS server: REDIS_URL needs the port of Redis")
	wantFinding(t, natsFindings(t, "nats://"+plain.Addr, "notifier", true), Fail, "it may be the port of Redis")
}

// TestTLSThatNATSDoesNotHave names the scheme.
func TestTLSThatNATSDoesNotHave(t *testing.T) {
	t.Parallel()
	url := strings.Replace(startNATS(t), "nats://", "tls://", 1)
	wantFinding(t, natsFindings(t, url, "notifier", true), Fail, "the server has no TLS: use nats:// in NATS_URL")
}

// TestDroppedEventsThatNobodyKeeps are a warning until a stream takes them.
func TestDroppedEventsThatNobodyKeeps(t *testing.T) {
	t.Parallel()
	url := startNATS(t)
	s := parsed(t, func(env *settings.Environment) {
		env.NATSURL, env.DroppedSubject, env.NATSReplicas = url, "notify-dropped", "3"
	})
	findings := found(t, checkNATS, s)
	wantFinding(t, findings, Warn, "no stream takes notify-dropped.>: dropped events reach only those who listen at that moment")
	wantFinding(t, findings, Warn, "NATS_REPLICAS is 3, and the server is not in a cluster")
	_, err := kit.JetStream(t, url).CreateStream(t.Context(), jetstream.StreamConfig{Name: "DROPPED", Subjects: []string{"notify-dropped.>"}})
	kit.Check(t, err)
	wantFinding(t, found(t, checkNATS, s), OK, "dropped events are kept in stream DROPPED")
}

// TestOneReplicaInACluster is a warning, unless it is asked for.
func TestOneReplicaInACluster(t *testing.T) {
	t.Parallel()
	url := kit.NATSCluster(t, 3, nil)[0].ClientURL()
	_, err := kit.JetStream(t, url).CreateStream(t.Context(), jetstream.StreamConfig{Name: "NOTIFY", Subjects: []string{"notify.>"}, Replicas: 1})
	kit.Check(t, err)
	const warning = "stream NOTIFY has one replica in a cluster of NATS servers"
	for replicas, want := range map[string]bool{"0": true, "3": true, "1": false} {
		findings := found(t, checkNATS, parsed(t, func(env *settings.Environment) { env.NATSURL, env.NATSReplicas = url, replicas }))
		warned := false
		for _, finding := range findings {
			warned = warned || finding.Level == Warn && strings.Contains(line(finding), warning) && strings.Contains(line(finding), "nats stream edit NOTIFY --replicas 3")
		}
		if warned != want {
			t.Errorf("NATS_REPLICAS=%s: warned %t, expected %t: %q", replicas, warned, want, findings)
		}
	}
}

// TestAdminAddrThatIsTaken: by a program, which may be a worker, or by nobody.
func TestAdminAddrThatIsTaken(t *testing.T) {
	t.Parallel()
	taken := kit.Serve(t, http.NotFoundHandler())
	_, port, _ := net.SplitHostPort(taken)
	for addr, want := range map[string]Level{
		taken: Note, "0.0.0.0:" + port: Note, ":" + port: Note, kit.FreeAddr(t): "", "127.0.0.1:0": "", "": "",
	} {
		r := &report{}
		checkAdminAddr(context.Background(), addr, r)
		switch {
		case want == "" && len(r.findings) > 0, want != "" && (len(r.findings) != 1 || r.findings[0].Level != want || !strings.Contains(r.findings[0].Text, addr)):
			t.Errorf("%q: %q, expected %q", addr, r.findings, want)
		}
	}
}

// TestMistakesInSlack are those that Slack itself takes.
func TestMistakesInSlack(t *testing.T) {
	t.Parallel()
	findings := found(t, checkSettings, parsed(t, func(env *settings.Environment) {
		env.SlackBotToken, env.SlackChannel, env.SlackRoutes, env.AdminAddr = "xoxp-"+secret, "C0123", "", ""
	}))
	wantFinding(t, findings, Warn, "SLACK_BOT_TOKEN is a person's token (xoxp-)")
}
