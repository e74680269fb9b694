package slackout

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"notifier/internal/devstack"
)

// expectations repeats the table of codes from the documentation, grouped by consequence for the event.
var expectations = []struct {
	codes string
	want  Error
}{
	{"ratelimited rate_limited", Error{Class: RetryAfter}},
	{"service_unavailable rollup_error", Error{Class: Retry}},
	{"message_limit_exceeded team_added_to_org org_login_required", Error{Class: Retry, RetryAfter: 10 * time.Minute}},
	{"internal_error fatal_error request_timeout", Error{Class: Ambiguous}},
	{`invalid_auth not_authed token_revoked token_expired account_inactive missing_scope not_allowed_token_type
		two_factor_setup_required team_access_not_granted accesslimited enterprise_is_restricted unknown_method
		deprecated_endpoint method_deprecated invalid_token action_prohibited no_service no_service_id no_active_hooks
		no_team team_disabled`, Error{Class: Credentials}},
	{`channel_not_found not_in_channel is_archived channel_is_archived user_not_found no_permission access_denied
		ekm_access_denied restricted_action restricted_action_read_only_channel posting_to_general_channel_denied`,
		Error{Class: Rejected, ChannelRefused: true}},
	{`restricted_action_thread_only_channel restricted_action_non_threadable_channel restricted_action_thread_locked
		cannot_reply_to_message message_not_found no_text msg_too_long invalid_blocks invalid_blocks_format
		invalid_attachments invalid_block_type msg_blocks_too_long too_many_attachments invalid_payload
		invalid_arguments too_many_contact_cards attachment_payload_limit_exceeded slack_connect_file_link_sharing_blocked slack_connect_canvas_sharing_blocked
		slack_connect_lists_sharing_blocked`,
		Error{Class: Rejected}},
	{metadataCodes, Error{Class: Rejected}}, // of a message without metadata; else see TestRefusedMetadata
}

const metadataCodes = "metadata_too_large invalid_metadata_format invalid_metadata_schema metadata_must_be_sent_from_app"

// Every code of the table is posted to the fake Slack, with every status it could come with, by both ways.
func TestCodes(t *testing.T) {
	want := map[string]Error{}
	for _, e := range expectations {
		for _, code := range strings.Fields(e.codes) {
			if _, known := codes[code]; !known {
				t.Errorf("%s is not in the table", code)
			}
			e.want.Code = code
			want[code] = e.want
		}
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s := startSlack(t)
			p := newPoster(t, way.config(s))
			p.learned.noMetadata.Store(true)
			for code := range codes {
				if _, expected := want[code]; !expected {
					t.Fatalf("nothing is expected of %s", code)
				}
				// 0 is the status that Slack gives it: 200 from the Web API, from a webhook one that goes with the code.
				for _, status := range []int{0, 200, 400, 403, 404, 429, 500, 502} {
					s.Respond(devstack.Next(devstack.Response{Code: code, Status: status}))
					_, err := p.Post(t.Context(), hello())
					if wantError(t, err, want[code]); t.Failed() {
						t.Fatalf("with status %d", status)
					}
				}
			}
			if s.Accepted() != 0 {
				t.Errorf("%d messages were accepted", s.Accepted())
			}
		})
	}
}

// answer pairs a response of Slack, or of a proxy, with the expected classification.
type answer struct {
	b    devstack.Response
	want Error
}

// html is the body of a proxy's or a front end's response.
const html = "<!DOCTYPE html><title>Welcome to the proxy</title>"

// Responses to both ways of posting, then the responses that only one of them can get.
var (
	answers = []answer{
		{devstack.Response{Status: 429, RetryAfter: "7"}, Error{Class: RetryAfter, Code: "ratelimited", RetryAfter: 7 * time.Second}},
		{devstack.Response{Status: 429}, Error{Class: RetryAfter, Code: "ratelimited"}},
		{devstack.Response{Status: 200, Code: "ratelimited", RetryAfter: "9"}, Error{Class: RetryAfter, Code: "ratelimited", RetryAfter: 9 * time.Second}},

		// Slack may have stored the message before it or a gateway failed. Only a code of Slack's own excludes that.
		{devstack.Response{Status: 500, Accept: true, Body: html}, Error{Class: Ambiguous, Code: "http_500"}},
		{devstack.Response{Status: 503, Code: "search_unavailable"}, Error{Class: Ambiguous, Code: "http_503"}},
		{devstack.Response{Status: 503, Body: `{"ok":true}`}, Error{Class: Ambiguous, Code: "http_503"}},
		{devstack.Response{Status: 599}, Error{Class: Ambiguous, Code: "http_599"}},

		// A wrong URL or something in between: the queue is held.
		{devstack.Response{Status: 404, Body: html}, Error{Class: Retry, Code: "http_404"}},
		{devstack.Response{Status: 400}, Error{Class: Retry, Code: "http_400"}},
		{devstack.Response{Status: 413}, Error{Class: Rejected, Code: "http_413"}},

		{devstack.Response{Body: html}, Error{Class: Ambiguous, Code: "invalid_response"}},
		{devstack.Response{Body: `{"ok":false}`}, Error{Class: Ambiguous, Code: "no_code"}},
		{devstack.Response{Body: `{"ok":true,`}, Error{Class: Ambiguous, Code: "invalid_response"}},

		{devstack.Response{Reset: true}, Error{Class: Ambiguous, Code: "connection_reset"}},
		{devstack.Response{Accept: true, Reset: true}, Error{Class: Ambiguous, Code: "connection_reset"}},
	}
	apiAnswers = []answer{
		{devstack.Response{Code: "not_known_yet"}, Error{Class: Rejected, Code: "not_known_yet"}},
		{devstack.Response{Code: "some_new_error"}, Error{Class: Ambiguous, Code: "some_new_error"}},
		{devstack.Response{Code: "backend_timeout"}, Error{Class: Ambiguous, Code: "backend_timeout"}},
		{devstack.Response{Code: "search_unavailable"}, Error{Class: Retry, Code: "search_unavailable"}},
		{devstack.Response{Code: "Bad Code <x>"}, Error{Class: Rejected, Code: "unknown_code"}},
		{devstack.Response{Status: 403, Code: "not_known_yet"}, Error{Class: Retry, Code: "http_403"}},
		{devstack.Response{Status: 200, Body: "ok"}, Error{Class: Ambiguous, Code: "invalid_response"}},
	}
	webhookAnswers = []answer{
		{devstack.Response{Status: 400, Code: "not_known_yet"}, Error{Class: Rejected, Code: "not_known_yet"}},
		{devstack.Response{Status: 403, Code: "not_known_yet"}, Error{Class: Credentials, Code: "not_known_yet"}},
		{devstack.Response{Status: 404, Code: "not_known_yet"}, Error{Class: Credentials, Code: "not_known_yet"}},
		{devstack.Response{Status: 410, Code: "not_known_yet"}, Error{Class: Credentials, Code: "not_known_yet"}},
		{devstack.Response{Body: "no_text"}, Error{Class: Rejected, Code: "no_text"}},
		{devstack.Response{Body: "not_known_yet"}, Error{Class: Ambiguous, Code: "invalid_response"}},
		{devstack.Response{Status: 400, Body: `{"ok":false,"error":"no_text"}`}, Error{Class: Rejected, Code: "no_text"}},
	}
)

// The fake Slack sends every response, through slack-go or the webhook.
func TestClasses(t *testing.T) {
	for i, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s := startSlack(t)
			p := newPoster(t, way.config(s))
			// Webhooks of workflows confirm with JSON; the API always does.
			s.Respond(devstack.Next(devstack.Response{Body: `{"ok":true}`, Accept: true}))
			mustPost(t, p, hello())
			for _, row := range slices.Concat(answers, [][]answer{apiAnswers, webhookAnswers}[i]) {
				t.Run(strings.TrimSpace(fmt.Sprintf("%d %s", row.b.Status, row.want.Code)), func(t *testing.T) {
					s.Respond(devstack.Next(row.b))
					before := s.Accepted()
					_, err := p.Post(t.Context(), hello())
					wantError(t, err, row.want)
					if accepted := s.Accepted() > before; accepted != row.b.Accept {
						t.Errorf("accepted: %t", accepted)
					}
				})
			}
		})
	}
}

func TestRetryAfterHeader(t *testing.T) {
	now := time.Date(2026, 11, 20, 4, 39, 0, 0, time.UTC)
	for _, test := range []struct {
		value, date string
		want        time.Duration
	}{
		{"", "", 0},
		{" 30 ", "", 30 * time.Second},
		{"1.5", "", 1500 * time.Millisecond},
		{"-3", "", minRetryAfter},
		{"1e999", "", 0},
		{"NaN", "", 0},
		{"1e300", "", MaxRetryAfter},
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
