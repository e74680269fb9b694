package real

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"notifier/test/kit"
)

// prometheusConf scrapes a worker as docs/operating.md says, with the token from a file, and once more
// without it.
const prometheusConf = `global: {scrape_interval: 500ms, evaluation_interval: 500ms}
rule_files: ["{{rules}}"]
scrape_configs:
  - job_name: notifier
    authorization: {credentials_file: {{token}}}
    static_configs: [{targets: ["{{worker}}"], labels: {service: notifier}}]
  - job_name: stranger
    static_configs: [{targets: ["{{worker}}"]}]
`

const adminToken = "token-of-the-admin-server"

// TestPrometheus: Prometheus reads a worker's metrics with the token, not without it, and evaluates the
// rules.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	path := prometheusRow.need(t)
	slack, env := services(t)
	env["ADMIN_ADDR"], env["ADMIN_TOKEN"] = kit.FreeAddr(t), adminToken
	worker := startWorker(t, env)
	rules, err := filepath.Abs("../../observability/rules/alerts.yml")
	kit.Check(t, err)
	files := t.TempDir()
	token, conf := filepath.Join(files, "token"), filepath.Join(files, "prometheus.yml")
	kit.Check(t, os.WriteFile(token, []byte(adminToken+"\n"), 0o600))
	text := strings.NewReplacer("{{rules}}", rules, "{{token}}", token, "{{worker}}", env["ADMIN_ADDR"]).Replace(prometheusConf)
	kit.Check(t, os.WriteFile(conf, []byte(text), 0o600))
	server := prometheus{kit.FreeAddr(t)}
	start(t, path, nil, "--config.file="+conf, "--storage.tsdb.path="+filepath.Join(files, "data"), "--web.listen-address="+server.addr)

	all := &events{js: kit.JetStream(t, env["NATS_URL"])}
	all.publish(t, "scraped", 3)
	all.account(t, worker, slack)
	for query, want := range map[string]string{
		`up{job="notifier"}`: "1", `up{job="stranger"}`: "0",
		`sum(notifier_events_total{outcome="sent",category="scraped",service="notifier"})`: "3",
		`notifier_limit_used{scope="global",service="notifier"}`:                           "3",
		`sum(notifier_slack_post_seconds_count{service="notifier"})`:                       "3",
		`count(notifier_slack_post_seconds_bucket{service="notifier"}) > bool 3`:           "1",
	} {
		kit.EventuallyNil(t, func() error {
			got, err := server.value(query)
			if err == nil && got != want {
				err = fmt.Errorf("%s is %s, expected %s", query, got, want)
			}
			return err
		})
	}
	kit.EventuallyNil(t, server.rules)
}

// prometheus is a client of a server.
type prometheus struct{ addr string }

// get reads the data of a page of the API.
func (p prometheus) get(path string, data any) error {
	response, err := http.Get("http://" + p.addr + path)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	reply := struct{ Data any }{data}
	return json.NewDecoder(response.Body).Decode(&reply)
}

// value evaluates an expression that has one value.
func (p prometheus) value(query string) (string, error) {
	var data struct {
		Result []struct{ Value []any }
	}
	err := p.get("/api/v1/query?query="+url.QueryEscape(query), &data)
	if err == nil && len(data.Result) != 1 {
		err = fmt.Errorf("%s has %d values, expected 1", query, len(data.Result))
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprint(data.Result[0].Value[1]), nil
}

// rules returns nil if all rules could be evaluated.
func (p prometheus) rules() error {
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if err := p.get("/api/v1/rules", &data); err != nil {
		return err
	}
	var bad []error
	for _, group := range data.Groups {
		for _, rule := range group.Rules {
			if rule.Health != "ok" {
				bad = append(bad, fmt.Errorf("rule %s is %s: %s", rule.Name, rule.Health, rule.LastError))
			}
		}
	}
	if len(data.Groups) == 0 {
		bad = append(bad, errors.New("prometheus has no rules"))
	}
	return errors.Join(bad...)
}
