//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"notifier/test/kit"
)

// testPrometheus: each worker is a target, and Prometheus's sums over all of them equal the published events.
func testPrometheus(t *testing.T, e *engine) {
	const service = "notifier"
	p := e.project(t, "prometheus", []string{observabilityFile, slackFile}, unpaced(t, fakeSlack...)...)
	p.up(t, "--wait", service, "fake-slack", "prometheus")
	p.checkPorts(t)
	prometheus := onlooker{p, "http://" + p.address(t, "prometheus", "9090")}

	t.Run("rules", func(t *testing.T) {
		var rules struct {
			Groups []struct {
				Rules []struct{ Name, Type, Health, LastError string }
			}
		}
		p.until(t, "all rules were evaluated", func() (bool, string) {
			prometheus.read(t, "/api/v1/rules", nil, &rules)
			evaluated, alerts, saw := true, 0, ""
			for _, group := range rules.Groups {
				for _, rule := range group.Rules {
					evaluated = evaluated && rule.Health == "ok"
					saw += fmt.Sprintf("%s: %s %s\n", rule.Name, rule.Health, rule.LastError)
					if rule.Type == "alerting" {
						alerts++
					}
				}
			}
			return evaluated && alerts >= 4, saw
		})
	})

	p.until(t, "three workers are targets and up", func() (bool, string) {
		got := prometheus.query(t, `sum by (service) (up{job="notifier"})`, "service")
		return maps.Equal(got, map[string]float64{service: 3}), fmt.Sprint(got)
	})
	// A malformed event: the alert about it fires a minute later.
	js, end := p.jetstream(t, "publisher", "_INBOX_publisher")
	defer end()
	_, err := js.Publish(p.ctx, "notify.broken", []byte(`{"text":7}`))
	kit.Check(t, err)
	published := p.publish(t, "seen", burst("seen"))
	p.untilSettled(t, service, len(published)+1)
	want := map[string]float64{"sent": limitGlobal, "dropped": float64(len(published) - limitGlobal), "dead": 1}
	p.until(t, "Prometheus has counted all events", func() (bool, string) {
		got := prometheus.query(t, `sum by (outcome) (notifier_events_total)`, "outcome")
		return maps.Equal(got, want), fmt.Sprint(got)
	})
	// The alerts and the dashboard use this rule, which must count new counters from zero.
	p.until(t, "they count as new ones", func() (bool, string) {
		got := prometheus.query(t, `sum by (outcome) (notifier:events:increase30m)`, "outcome")
		return maps.Equal(got, want), fmt.Sprint(got)
	})
	p.until(t, "the alert about dead letters is due", func() (bool, string) {
		got := prometheus.query(t, `sum by (alertname) (ALERTS)`, "alertname")
		return got["NotifierDeadLetters"] == 1, fmt.Sprint(got)
	})
	p.until(t, "it fires, and no other", func() (bool, string) {
		got := prometheus.query(t, `sum by (alertname) (ALERTS{alertstate="firing"})`, "alertname")
		return maps.Equal(got, map[string]float64{"NotifierDeadLetters": 1}), fmt.Sprint(got)
	})
}

// testGrafana: viewers see the provisioned dashboard and its datasource, and cannot change them. No other test
// needs Grafana's image.
func testGrafana(t *testing.T, e *engine) {
	p := e.project(t, "grafana", []string{observabilityFile})
	services := p.config(t)
	for _, name := range []string{"grafana", "prometheus"} {
		service := services[name]
		if !service.ReadOnly || !slices.Equal(service.CapDrop, []string{"ALL"}) || !slices.Contains(service.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s is not hardened: %+v", name, service)
		}
		if len(service.Ports) != 1 || service.Ports[0].HostIP != "127.0.0.1" {
			t.Errorf("%s is published on %+v, expected 127.0.0.1", name, service.Ports)
		}
		if !regexp.MustCompile(`:v?\d+\.\d+\.\d+$`).MatchString(service.Image) {
			t.Errorf("%s: the image %s is not of one version", name, service.Image)
		}
	}
	image := services["grafana"].Image
	if _, err := e.run(e.ctx, commandDeadline, "docker", "image", "inspect", image); err != nil {
		t.Skipf("Grafana is NOT STARTED: the image %s is not there", image)
	}

	p.up(t, "prometheus", "grafana")
	grafana := onlooker{p, "http://" + p.address(t, "grafana", "3000")}
	p.until(t, "Grafana has the dashboard", func() (bool, string) {
		status, answer, err := grafana.ask(http.MethodGet, "/api/dashboards/uid/notifier", nil)
		return err == nil && status == http.StatusOK && strings.Contains(answer, `"provisioned":true`), fmt.Sprint(status, err, answer)
	})
	p.until(t, "its datasource answers", func() (bool, string) {
		status, answer, err := grafana.ask(http.MethodGet, "/api/datasources/proxy/uid/notifier-prometheus/api/v1/query",
			url.Values{"query": {"vector(42)"}})
		return err == nil && status == http.StatusOK && strings.Contains(answer, `"42"`), fmt.Sprint(status, err, answer)
	})
	if status, answer, err := grafana.ask(http.MethodPost, "/api/dashboards/db", nil); err != nil || status < 400 || status >= 500 {
		t.Errorf("saving a dashboard: %d %v %s; expected a refusal", status, err, answer)
	}
}

// onlooker is Prometheus or Grafana.
type onlooker struct {
	*project
	url string
}

func (o onlooker) ask(method, path string, values url.Values) (status int, answer string, err error) {
	request, err := http.NewRequestWithContext(o.ctx, method, o.url+path+"?"+values.Encode(), nil)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// read decodes the data of a reply of Prometheus's API.
func (o onlooker) read(t *testing.T, path string, values url.Values, into any) {
	t.Helper()
	status, answer, err := o.ask(http.MethodGet, path, values)
	if err == nil && status == http.StatusOK {
		err = json.Unmarshal([]byte(answer), &struct{ Data any }{into})
	}
	if err != nil || status != http.StatusOK {
		t.Fatalf("%s: %d %v %s", path, status, err, answer)
	}
}

// query gives the values of an instant vector by one of its labels.
func (o onlooker) query(t *testing.T, expr, label string) map[string]float64 {
	t.Helper()
	var data struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any // time and value
		}
	}
	o.read(t, "/api/v1/query", url.Values{"query": {expr}}, &data)
	values := map[string]float64{}
	for _, sample := range data.Result {
		value, err := strconv.ParseFloat(fmt.Sprint(sample.Value[1]), 64)
		if err != nil {
			t.Fatalf("%s: %v in %v", expr, err, sample)
		}
		values[sample.Metric[label]] = value
	}
	return values
}
