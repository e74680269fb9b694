package real

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"notifier/test/kit"
)

// collectorConf receives traces by HTTP from clients with a certificate, compressed and in no other form, and
// prints them.
const collectorConf = `receivers:
  otlp:
    protocols:
      http:
        endpoint: {{listen}}
        compression_algorithms: [gzip]
        tls: {cert_file: {{certificate}}, key_file: {{key}}, client_ca_file: {{authority}}}
exporters:
  debug: {verbosity: detailed, use_internal_logger: false}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    traces: {receivers: [otlp], exporters: [debug]}
`

// TestCollector: the span of an event arrives, in the trace of its publisher.
func TestCollector(t *testing.T) {
	t.Parallel()
	path := collectorRow.need(t)
	authority, addr := kit.NewAuthority(t, "ours"), kit.FreeAddr(t)
	certificate, key := authority.Issue(t, "127.0.0.1")
	own, ownKey := authority.Issue(t, "worker")
	conf := strings.NewReplacer("{{listen}}", addr, "{{certificate}}", certificate, "{{key}}", key, "{{authority}}", authority.File).
		Replace(collectorConf)
	file := filepath.Join(t.TempDir(), "collector.yaml")
	kit.Check(t, os.WriteFile(file, []byte(conf), 0o600))
	collector := start(t, path, nil, "--config", file)
	kit.Eventually(t, "the collector listens", func() bool { return listens(addr) })

	slack, env := services(t)
	env["OTEL_EXPORTER_OTLP_ENDPOINT"] = "https://" + addr
	env["OTEL_EXPORTER_OTLP_COMPRESSION"] = "gzip"
	env["OTEL_EXPORTER_OTLP_CERTIFICATE"] = authority.File
	env["OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"], env["OTEL_EXPORTER_OTLP_CLIENT_KEY"] = own, ownKey
	env["OTEL_BSP_SCHEDULE_DELAY"] = "100" // milliseconds
	worker := startWorker(t, env)
	all := &events{js: kit.JetStream(t, env["NATS_URL"])}
	all.publish(t, "traced", 3)
	all.account(t, worker, slack)
	const trace = "0af7651916cd43dd8448eb211c80319c"
	message := nats.NewMsg("notify.traced")
	message.Data = []byte("of a trace")
	message.Header.Set("traceparent", "00-"+trace+"-b7ad6b7169203331-01")
	_, err := all.js.PublishMsg(t.Context(), message)
	kit.Check(t, err)
	for _, text := range append([]string{
		"Name           : notification", "service.name: Str(notifier)", "notifier.category: Str(traced)", "notifier.outcome: Str(sent)",
		"Trace ID       : " + trace, "Parent ID      : b7ad6b7169203331",
	}, all.ids...) {
		kit.Eventually(t, "the collector prints "+text, func() bool { return strings.Contains(collector.said.String(), text) })
	}
	if log, err := os.ReadFile(worker.Log); err != nil || strings.Contains(string(log), "spans are lost") {
		t.Errorf("the worker lost spans, %v", err)
	}
}
