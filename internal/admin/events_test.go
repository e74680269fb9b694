package admin_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"notifier/internal/admin"
)

// Recent outcomes are asked for with three parameters. Anything else is an error that names what was
// expected.
func TestEvents(t *testing.T) {
	probes := probesOf(one)
	probes.Events = func(_, _ context.Context, query admin.EventsQuery) (any, error) {
		if query.Category == "gone" {
			return nil, errors.New("no \x1b[31mstream")
		}
		return query, nil
	}
	server, client := start(t, probes)
	for query, want := range map[string]struct {
		status int
		body   string
	}{
		"":                               {200, `{"Category":"","Outcome":"","N":100}`},
		"?":                              {200, `{"Category":"","Outcome":"","N":100}`},
		"?category=a.b&outcome=dead&n=7": {200, `{"Category":"a.b","Outcome":"dead","N":7}`},
		"?category=%E2%80%AE%1b":         {200, `{"Category":"\u202e\u001b","Outcome":"","N":100}`},
		"?category=&outcome=&n=":         {200, `{"Category":"","Outcome":"","N":100}`},
		"?category=gone":                 {503, `{"error":"no \u001b[31mstream"}`},
		"?outcome=eaten":                 {400, `{"error":"outcome \"eaten\", expected one of sent, dropped, dead"}`},
		"?n=0":                           {400, `{"error":"n \"0\", expected a number from 1 to 200"}`},
		"?n=201":                         {400, `{"error":"n \"201\", expected a number from 1 to 200"}`},
		"?n=9999999999999999999999":      {400, `{"error":"n \"9999999999999999999999\", expected a number from 1 to 200"}`},
		"?n=ten":                         {400, `{"error":"n \"ten\", expected a number from 1 to 200"}`},
		"?reason=global":                 {400, `{"error":"unknown parameter \"reason\", expected category, outcome or n"}`},
		"?n=1&n=2":                       {400, `{"error":"n is given 2 times, expected once"}`},
		"?a;b=%zz":                       {400, `{"error":"the query cannot be read; expected category, outcome or n"}`},
	} {
		response, body := ask(t, client, http.MethodGet, "http://"+server.Addr()+"/api/events"+query)
		if response.StatusCode != want.status || strings.TrimSpace(body) != want.body || response.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s, expected %d %s", query, response.StatusCode, body, want.status, want.body)
		}
	}
	without, client := start(t, probesOf(one))
	if response, _ := ask(t, client, http.MethodGet, "http://"+without.Addr()+"/api/events"); response.StatusCode != http.StatusNotFound {
		t.Errorf("without a source: %d", response.StatusCode)
	}
}
