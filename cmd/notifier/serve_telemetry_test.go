package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"notifier/internal/app"
	"notifier/internal/devstack"
	"notifier/internal/settings"
	"notifier/test/kit"
)

// TestServeReportsWhatWasDropped: the digest arrives in its channel, from a worker as the settings wire it,
// and dropped events to their subject. The settings would only accept an interval of a minute or more.
func TestServeReportsWhatWasDropped(t *testing.T) {
	t.Parallel()
	server, slack, env := services(t, nil)
	connection, err := nats.Connect(server.URL())
	kit.Check(t, err)
	t.Cleanup(connection.Close)
	spilled, err := connection.SubscribeSync("spilled.>")
	kit.Check(t, err)
	variables := map[string]string{}
	variables["NATS_URL"], variables["REDIS_URL"], variables["SLACK_API_URL"] = env["NATS_URL"], env["REDIS_URL"], env["SLACK_API_URL"]
	variables["SLACK_BOT_TOKEN"], variables["SLACK_CHANNEL"], variables["ADMIN_ADDR"] = "xoxb-1", "#alerts", ""
	variables["LIMIT_CATEGORY"], variables["DROPPED_SUBJECT"] = "2/1h", "spilled"
	variables["DIGEST_INTERVAL"], variables["DIGEST_CHANNEL"] = "1m", "#digest"
	s, err := settings.From(variables)
	kit.Check(t, err)
	s.Slack.RootCAs = trustedRoots(t, env)
	s.Digest = 6 * time.Second // reports are up to a second late, the digest waits for half an interval
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx, s, zap.NewNop(), nil) }()
	js := kit.JetStream(t, env["NATS_URL"])
	kit.EventuallyNil(t, func() error {
		_, err := js.Stream(t.Context(), s.NATS.Stream)
		return err
	})
	publishes(t, env, "errors", "-n", "5", "disk full")
	kit.EventuallyNil(t, func() error { // the drops may lie in two intervals
		if drops := digested(slack, "errors"); drops != 3 {
			return fmt.Errorf("the digests tell of %d drops, expected 3", drops)
		}
		return nil
	})
	for range 3 {
		message, err := spilled.NextMsg(kit.Patience)
		if err != nil {
			t.Fatalf("a dropped event is missing on its subject: %v", err)
		}
		if message.Subject != "spilled.errors" || message.Header.Get("Notifier-Reason") != "category" || string(message.Data) != "disk full" {
			t.Errorf("republished: %s %q %v", message.Subject, message.Data, message.Header)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// digested returns the number of drops over a category's limit in the digests that the fake Slack has.
func digested(slack *devstack.Slack, category string) (drops int) {
	line := regexp.MustCompile(regexp.QuoteMeta("`"+category+"`") + `: (\d+) \(category limit\)`)
	for _, message := range slack.Messages() {
		if found := line.FindStringSubmatch(message.Text); message.Channel == "#digest" && found != nil {
			count, _ := strconv.Atoi(found[1])
			drops += count
		}
	}
	return drops
}

// TestWrongTracingVariablesStopNoWorker: it warns, names the variable and posts.
func TestWrongTracingVariablesStopNoWorker(t *testing.T) {
	t.Parallel()
	_, _, env := services(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"})
	p := startReady(t, env)
	publishes(t, env, "errors", "disk full")
	kit.Eventually(t, "it is sent", func() bool { return len(p.out.lines(`"outcome":"sent"`)) == 1 })
	warnings := p.out.lines(`"level":"warn"`, `"no traces are exported"`)
	if len(warnings) != 1 || !strings.Contains(warnings[0], "OTEL_EXPORTER_OTLP_ENDPOINT: ") {
		t.Errorf("%q, expected one warning that names the variable", warnings)
	}
}

// TestMetricsOfAWorker holds the types on /metrics against the list that the alert rules and the dashboard
// are checked with, and against promtool's rules for good metrics.
func TestMetricsOfAWorker(t *testing.T) {
	t.Parallel()
	_, _, env := services(t, map[string]string{"LIMIT_CATEGORY": "2/1h", "LIMIT_RESERVE": "payments=5"})
	p := startReady(t, env)
	publishes(t, env, "errors", "-n", "3", "disk full")
	kit.Eventually(t, "all are settled", func() bool { return len(p.out.lines(`"outcome":`)) == 3 })
	expectMetrics(t, adminURL(t, &p.out)+"/metrics", "notifier_consumer_pending ", "notifier_stream_unread_stuck ",
		`notifier_stream_used_ratio\{`) // once the streams were looked up
	status, text := get(t, adminURL(t, &p.out)+"/metrics")
	if status != http.StatusOK {
		t.Fatalf("/metrics answers %d", status)
	}
	listed := read(t, "observability/metrics.txt")
	for _, found := range regexp.MustCompile(`(?m)^(notifier_\w+) (\w+)`).FindAllStringSubmatch(listed, -1) {
		if !strings.Contains(text, "# TYPE "+found[1]+" "+found[2]+"\n") {
			t.Errorf("%s is no %s on /metrics, as observability/metrics.txt says", found[1], found[2])
		}
	}
	for _, want := range []string{
		`notifier_limit_used{category="",scope="global"} 2`, `notifier_limit_max{category="errors",scope="category"} 2`,
		`notifier_held_events{why="slack"} 0`, `notifier_consumer_pending 0`, `notifier_slack_post_seconds_count{result="ok"} 2`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("no line %s on /metrics", want)
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("NOTIFIER_TEST_PROMTOOL") == "require" {
			t.Fatal("promtool is required and not there")
		}
		t.Skip("promtool is not there: whether the metrics are as they should be is not checked")
	}
	command := exec.Command(promtool, "check", "metrics")
	command.Stdin = bytes.NewReader([]byte(text))
	if out, err := command.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
