package slackout

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"notifier/internal/devstack"
)

// Some apps get 15 messages, and a minute later the next: to begin anew after the refusal would never end.
func TestFindOfASlowApp(t *testing.T) {
	s, p := startFinding(t)
	fill(t, p, 20)
	pages := func(size int) devstack.Hook {
		return devstack.NextHistory(devstack.Response{PageSize: size}, devstack.Response{RetryAfter: "60"})
	}

	s.Respond(pages(15))
	_, _, err := p.Find(t.Context(), note("e1"))
	wantNoHistory(t, err, "rate_limited")

	s.Respond(pages(16))
	_, _, err = p.Find(t.Context(), note("e1"))
	wantError(t, err, Error{Class: RetryAfter, Code: "ratelimited", RetryAfter: time.Minute})
}

// Every code of the table: a code about the token is left to the caller, one about the channel or the method
// makes the history unavailable, and any other is temporary.
func TestFindCodes(t *testing.T) {
	s, p := startFinding(t)
	lasting := map[string]bool{
		"missing_scope": true, "not_allowed_token_type": true, "unknown_method": true, "enterprise_is_restricted": true,
		"deprecated_endpoint": true, "method_deprecated": true,
	}
	for _, e := range expectations {
		for _, code := range strings.Fields(e.codes) {
			s.Respond(devstack.NextHistory(devstack.Response{Code: code}))
			ev := note("e1")
			ev.Channel = "C0" + strings.ToUpper(strings.ReplaceAll(code, "_", ""))
			_, found, err := p.Find(t.Context(), ev)
			want := e.want
			want.Code = code
			switch {
			case found:
				t.Errorf("%s: found", code)
			case want.Class == Rejected || lasting[code]:
				wantNoHistory(t, err, code)
			case want.Class == Ambiguous:
				want.Class = Retry
				wantError(t, err, want)
			default:
				wantError(t, err, want)
			}
			// A second Find sends a request, unless the refusal concerns the token or the method.
			before := s.HistoryRequests()
			_, _, err = p.Find(t.Context(), ev)
			if lasting[code] {
				wantNoHistory(t, err, code)
			} else if err != nil {
				t.Errorf("%s: then %v", code, err)
			}
			if asked := s.HistoryRequests() > before; asked == lasting[code] {
				t.Errorf("%s: asked again: %t", code, asked)
			}
			mustPost(t, p, ev) // posts are not affected
		}
	}
}

func TestFindFailures(t *testing.T) {
	s, p := startFinding(t)
	for _, test := range []struct {
		b      devstack.Response
		want   Error
		reason string // of ErrHistoryUnavailable, instead of want
	}{
		{b: devstack.Response{Status: 502, Body: html}, want: Error{Class: Retry, Code: "http_502"}},
		{b: devstack.Response{Reset: true}, want: Error{Class: Retry, Code: "connection_reset"}},
		{b: devstack.Response{Code: "not_known_yet"}, reason: "not_known_yet"},
		{b: devstack.Response{Status: 302, Header: location(s.URL())}, reason: "http_302"},
		{b: devstack.Response{Status: 403, Body: html}, reason: "http_403"},
		{b: devstack.Response{Body: `{"ok":true,"messages":7}`}, reason: "invalid_response"},
		{b: devstack.Response{Body: strings.Repeat(" ", maxReply+1)}, reason: "invalid_response"},
	} {
		s.Respond(devstack.NextHistory(test.b))
		_, found, err := p.Find(t.Context(), note("e1"))
		if found {
			t.Errorf("%d %.20s: found", test.b.Status, test.b.Body)
		}
		if test.reason != "" {
			wantNoHistory(t, err, test.reason)
		} else {
			wantError(t, err, test.want)
		}
	}
	wantNotFound(t, p, note("e1"))
}

func TestFindEndsInTime(t *testing.T) {
	s := startSlack(t)
	config := ways[0].config(s)
	config.Timeout = 50 * time.Millisecond
	p := newPoster(t, config)
	s.Respond(devstack.NextHistory(devstack.Response{Hang: true}))
	_, _, err := p.Find(t.Context(), note("e1"))
	wantError(t, err, Error{Class: Retry, Code: "timeout"})
	if errors.Is(err, context.DeadlineExceeded) {
		t.Error("the Poster's own timeout must not look like the caller's")
	}
}
