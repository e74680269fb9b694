package slackout

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"notifier/internal/devstack"
)

// Every row is posted to the fake Slack and comes back through slack-go or the webhook.
func TestClasses(t *testing.T) {
	type row struct {
		b    devstack.Behaviour
		want Error
	}
	var shared, api, webhook []row

	// The whole table, by both ways.
	for code, class := range codes {
		want := Error{Class: class, Code: code}
		switch code {
		case "ratelimited", "rate_limited":
			want.RetryAfter = defaultRetryAfter
		case "message_limit_exceeded", "team_added_to_org", "org_login_required":
			want.RetryAfter = longWait
		}
		shared = append(shared, row{devstack.Behaviour{Code: code}, want})
	}

	html := "<!DOCTYPE html><title>Welcome to the proxy</title>"
	shared = append(shared, []row{
		{devstack.Behaviour{Status: 429, RetryAfter: "7"}, Error{RetryAfter, "ratelimited", 7 * time.Second, nil}},
		{devstack.Behaviour{Status: 429, RetryAfter: "7", Accept: true}, Error{RetryAfter, "ratelimited", 7 * time.Second, nil}},
		{devstack.Behaviour{Status: 429, RetryAfter: "0"}, Error{RetryAfter, "ratelimited", minRetryAfter, nil}},
		{devstack.Behaviour{Status: 429, RetryAfter: "soon"}, Error{RetryAfter, "ratelimited", defaultRetryAfter, nil}},
		{devstack.Behaviour{Status: 429, RetryAfter: "99999999999999999999"}, Error{RetryAfter, "ratelimited", maxRetryAfter, nil}},
		{devstack.Behaviour{Status: 429}, Error{RetryAfter, "ratelimited", defaultRetryAfter, nil}},
		{devstack.Behaviour{Status: 429, Body: html}, Error{RetryAfter, "ratelimited", defaultRetryAfter, nil}},
		{devstack.Behaviour{Status: 200, Code: "ratelimited", RetryAfter: "9"}, Error{RetryAfter, "ratelimited", 9 * time.Second, nil}},
		{devstack.Behaviour{Status: 200, Code: "rate_limited", RetryAfter: "9"}, Error{RetryAfter, "rate_limited", 9 * time.Second, nil}},
		{devstack.Behaviour{Status: 429, Code: "message_limit_exceeded"}, Error{Retry, "message_limit_exceeded", longWait, nil}},

		{devstack.Behaviour{Status: 500}, Error{Retry, "http_500", 0, nil}},
		{devstack.Behaviour{Status: 500, Body: html}, Error{Retry, "http_500", 0, nil}},
		{devstack.Behaviour{Status: 503}, Error{Retry, "http_503", 0, nil}},
		{devstack.Behaviour{Status: 503, Code: "service_unavailable"}, Error{Retry, "service_unavailable", 0, nil}},
		{devstack.Behaviour{Status: 502}, Error{Ambiguous, "http_502", 0, nil}},
		{devstack.Behaviour{Status: 504, Body: html, Accept: true}, Error{Ambiguous, "http_504", 0, nil}},
		{devstack.Behaviour{Status: 500, Code: "fatal_error"}, Error{Ambiguous, "fatal_error", 0, nil}},

		// A wrong URL or something in between: the queue is held.
		{devstack.Behaviour{Status: 302}, Error{Retry, "http_302", 0, nil}},
		{devstack.Behaviour{Status: 401, Body: html}, Error{Retry, "http_401", 0, nil}},
		{devstack.Behaviour{Status: 403, Body: html}, Error{Retry, "http_403", 0, nil}},
		{devstack.Behaviour{Status: 404, Body: html}, Error{Retry, "http_404", 0, nil}},
		{devstack.Behaviour{Status: 400, Body: html}, Error{Retry, "http_400", 0, nil}},
		{devstack.Behaviour{Status: 407}, Error{Retry, "http_407", 0, nil}},
		{devstack.Behaviour{Status: 413}, Error{Rejected, "http_413", 0, nil}},

		{devstack.Behaviour{Body: html}, Error{Ambiguous, "invalid_response", 0, nil}},
		{devstack.Behaviour{Body: `[]`}, Error{Ambiguous, "invalid_response", 0, nil}},
		{devstack.Behaviour{Body: `{"ok":false}`}, Error{Ambiguous, "no_code", 0, nil}},
		{devstack.Behaviour{Body: `{"ok":false,"error":""}`}, Error{Ambiguous, "no_code", 0, nil}},
		{devstack.Behaviour{Body: `{"ok":true,`}, Error{Ambiguous, "invalid_response", 0, nil}},

		{devstack.Behaviour{CutBefore: true}, Error{Ambiguous, "connection_reset", 0, nil}},
		{devstack.Behaviour{CutAfter: true}, Error{Ambiguous, "connection_reset", 0, nil}},
	}...)

	api = []row{
		{devstack.Behaviour{Code: "not_known_yet"}, Error{Rejected, "not_known_yet", 0, nil}},
		{devstack.Behaviour{Code: "some_new_error"}, Error{Ambiguous, "some_new_error", 0, nil}},
		{devstack.Behaviour{Code: "backend_timeout"}, Error{Ambiguous, "backend_timeout", 0, nil}},
		{devstack.Behaviour{Code: "search_unavailable"}, Error{Retry, "search_unavailable", 0, nil}},
		{devstack.Behaviour{Code: "Bad Code <x>"}, Error{Rejected, "unknown_code", 0, nil}},
		{devstack.Behaviour{Status: 403, Code: "not_known_yet"}, Error{Retry, "http_403", 0, nil}},
		{devstack.Behaviour{Status: 200, Body: "ok"}, Error{Ambiguous, "invalid_response", 0, nil}},
	}
	webhook = []row{
		{devstack.Behaviour{Status: 400, Code: "not_known_yet"}, Error{Rejected, "not_known_yet", 0, nil}},
		{devstack.Behaviour{Status: 403, Code: "not_known_yet"}, Error{Credentials, "not_known_yet", 0, nil}},
		{devstack.Behaviour{Status: 404, Code: "not_known_yet"}, Error{Credentials, "not_known_yet", 0, nil}},
		{devstack.Behaviour{Status: 410, Code: "not_known_yet"}, Error{Credentials, "not_known_yet", 0, nil}},
		{devstack.Behaviour{Body: "no_text"}, Error{Rejected, "no_text", 0, nil}},
		{devstack.Behaviour{Body: "not_known_yet"}, Error{Ambiguous, "invalid_response", 0, nil}},
		{devstack.Behaviour{Body: "OK"}, Error{Ambiguous, "invalid_response", 0, nil}},
		{devstack.Behaviour{Body: "not ok"}, Error{Ambiguous, "invalid_response", 0, nil}},
		{devstack.Behaviour{Body: " "}, Error{Ambiguous, "invalid_response", 0, nil}},
		{devstack.Behaviour{Status: 400, Body: `{"ok":false,"error":"no_text"}`}, Error{Rejected, "no_text", 0, nil}},
	}

	for i, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s := startSlack(t)
			p := newPoster(t, way.config(s))
			for _, row := range append(shared, [][]row{api, webhook}[i]...) {
				t.Run(strings.TrimSpace(fmt.Sprintf("%d %s", row.b.Status, row.want.Code)), func(t *testing.T) {
					s.Next(row.b)
					before := s.Accepted()
					_, err := p.Post(t.Context(), hello())
					wantError(t, err, row.want)
					if accepted := s.Accepted() > before; accepted != (row.b.Accept || row.b.CutAfter) {
						t.Errorf("accepted: %t", accepted)
					}
				})
			}
		})
	}
}

// The codes that the fake Slack gives by itself.
func TestRefusedMessages(t *testing.T) {
	s := startSlack(t)
	for _, way := range ways {
		ev := hello()
		ev.Text = " "
		_, err := newPoster(t, way.config(s)).Post(t.Context(), ev)
		wantError(t, err, Error{Class: Rejected, Code: "no_text"})
		ev.Blocks = []byte(`{"not":"an array"}`)
		_, err = newPoster(t, way.config(s)).Post(t.Context(), ev)
		wantError(t, err, Error{Class: Rejected, Code: "invalid_blocks"})
	}
	webhook := ways[1].config(s)
	webhook.WebhookURL += "x"
	_, err := newPoster(t, webhook).Post(t.Context(), hello())
	wantError(t, err, Error{Class: Credentials, Code: "invalid_token"})
	webhook.WebhookURL = s.URL() + "/services/T1/B1/x"
	_, err = newPoster(t, webhook).Post(t.Context(), hello())
	wantError(t, err, Error{Class: Credentials, Code: "no_service"})
	token := ways[0].config(s)
	token.Token = "xoxb-revoked"
	_, err = newPoster(t, token).Post(t.Context(), hello())
	wantError(t, err, Error{Class: Credentials, Code: "token_revoked"})
}

// Webhooks of workflows answer JSON; to take their success for an ambiguity would post it over and over.
func TestWebhookThatAnswersJSON(t *testing.T) {
	s := startSlack(t)
	s.Next(devstack.Behaviour{Body: `{"ok":true}`})
	if _, err := newPoster(t, ways[1].config(s)).Post(t.Context(), hello()); err != nil {
		t.Error(err)
	}
}

func TestRetryAfterHeader(t *testing.T) {
	now := time.Date(2026, 11, 20, 4, 39, 0, 0, time.UTC)
	for _, test := range []struct {
		value, date string
		want        time.Duration
	}{
		{"", "", defaultRetryAfter},
		{"30", "", 30 * time.Second},
		{" 30 ", "", 30 * time.Second},
		{"1.5", "", 1500 * time.Millisecond},
		{"-3", "", minRetryAfter},
		{"0", "", minRetryAfter},
		{"NaN", "", defaultRetryAfter},
		{"+Inf", "", maxRetryAfter},
		{"1e300", "", maxRetryAfter},
		{"7200", "", maxRetryAfter},
		{"tomorrow", "", defaultRetryAfter},
		{now.Add(90 * time.Second).Format(http.TimeFormat), "", 90 * time.Second},
		{now.Add(-90 * time.Second).Format(http.TimeFormat), "", minRetryAfter},
		{now.Add(5 * time.Minute).Format(http.TimeFormat), now.Add(4 * time.Minute).Format(http.TimeFormat), time.Minute},
	} {
		h := http.Header{}
		h.Set("Retry-After", test.value)
		h.Set("Date", test.date)
		if got := retryAfter(h, now); got != test.want {
			t.Errorf("Retry-After %q, Date %q: %s, want %s", test.value, test.date, got, test.want)
		}
	}
}

func TestClassNames(t *testing.T) {
	for class, want := range map[Class]string{
		RetryAfter: "rate_limited", Retry: "unavailable", Ambiguous: "ambiguous",
		Rejected: "rejected", Credentials: "credentials", 0: "class(0)",
	} {
		if got := class.String(); got != want {
			t.Errorf("Class(%d).String() = %q, want %q", int(class), got, want)
		}
	}
}
