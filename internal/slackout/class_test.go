package slackout

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slack-go/slack"

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

// slack-go reads the fake's responses as it reads Slack's.
func TestSlackGoReadsTheFake(t *testing.T) {
	s := startSlack(t)
	api := slack.New(testToken, slack.OptionAPIURL(s.APIURL()))
	post := func(b devstack.Response) error {
		s.Respond(devstack.Next(b))
		_, _, err := api.PostMessageContext(t.Context(), "C0", slack.MsgOptionText("hello", false))
		return err
	}
	for code := range codes {
		var answer slack.SlackErrorResponse
		if err := post(devstack.Response{Code: code}); !errors.As(err, &answer) || answer.Err != code {
			t.Errorf("%s: slack-go reads %v", code, err)
		}
	}
	var limited *slack.RateLimitedError
	if err := post(devstack.Response{RetryAfter: "7"}); !errors.As(err, &limited) || limited.RetryAfter != 7*time.Second {
		t.Errorf("429 with Retry-After 7: slack-go reads %v", err)
	}
	if err := post(devstack.Response{}); err != nil {
		t.Error(err)
	}
}

// answer is a response of Slack, or of a proxy before it, and the expected classification.
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
		{devstack.Response{Status: 200, Code: "rate_limited", RetryAfter: "9"}, Error{Class: RetryAfter, Code: "rate_limited", RetryAfter: 9 * time.Second}},
		{devstack.Response{Status: 429, Code: "message_limit_exceeded"}, Error{Class: Retry, Code: "message_limit_exceeded", RetryAfter: 10 * time.Minute}},

		// Slack may have stored the message before it or a gateway failed. Only a code of Slack's own excludes that.
		{devstack.Response{Status: 500}, Error{Class: Ambiguous, Code: "http_500"}},
		{devstack.Response{Status: 500, Accept: true, Body: html}, Error{Class: Ambiguous, Code: "http_500"}},
		{devstack.Response{Status: 501}, Error{Class: Ambiguous, Code: "http_501"}},
		{devstack.Response{Status: 502}, Error{Class: Ambiguous, Code: "http_502"}},
		{devstack.Response{Status: 503}, Error{Class: Ambiguous, Code: "http_503"}},
		{devstack.Response{Status: 503, Body: html}, Error{Class: Ambiguous, Code: "http_503"}},
		{devstack.Response{Status: 503, Code: "not_known_yet"}, Error{Class: Ambiguous, Code: "http_503"}},
		{devstack.Response{Status: 503, Code: "search_unavailable"}, Error{Class: Ambiguous, Code: "http_503"}},
		{devstack.Response{Status: 503, Body: "service unavailable"}, Error{Class: Ambiguous, Code: "http_503"}},
		{devstack.Response{Status: 503, Body: `{"ok":false}`}, Error{Class: Ambiguous, Code: "http_503"}},
		{devstack.Response{Status: 503, Body: `{"ok":true}`}, Error{Class: Ambiguous, Code: "http_503"}},
		{devstack.Response{Status: 504, Body: html, Accept: true}, Error{Class: Ambiguous, Code: "http_504"}},
		{devstack.Response{Status: 520, Body: html}, Error{Class: Ambiguous, Code: "http_520"}},
		{devstack.Response{Status: 524, Accept: true}, Error{Class: Ambiguous, Code: "http_524"}},
		{devstack.Response{Status: 599}, Error{Class: Ambiguous, Code: "http_599"}},
		{devstack.Response{Status: 500, Code: "fatal_error"}, Error{Class: Ambiguous, Code: "fatal_error"}},
		{devstack.Response{Status: 503, Code: "service_unavailable"}, Error{Class: Retry, Code: "service_unavailable"}},
		{devstack.Response{Status: 500, Code: "rollup_error"}, Error{Class: Retry, Code: "rollup_error"}},

		// A wrong URL or something in between: the queue is held.
		{devstack.Response{Status: 302}, Error{Class: Retry, Code: "http_302"}},
		{devstack.Response{Status: 401, Body: html}, Error{Class: Retry, Code: "http_401"}},
		{devstack.Response{Status: 403, Body: html}, Error{Class: Retry, Code: "http_403"}},
		{devstack.Response{Status: 404, Body: html}, Error{Class: Retry, Code: "http_404"}},
		{devstack.Response{Status: 400}, Error{Class: Retry, Code: "http_400"}},
		{devstack.Response{Status: 410}, Error{Class: Retry, Code: "http_410"}},
		{devstack.Response{Status: 407}, Error{Class: Retry, Code: "http_407"}},
		{devstack.Response{Status: 413}, Error{Class: Rejected, Code: "http_413"}},

		{devstack.Response{Body: html}, Error{Class: Ambiguous, Code: "invalid_response"}},
		{devstack.Response{Body: `[]`}, Error{Class: Ambiguous, Code: "invalid_response"}},
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
		{devstack.Response{Body: "OK"}, Error{Class: Ambiguous, Code: "invalid_response"}},
		{devstack.Response{Status: 400, Body: `{"ok":false,"error":"no_text"}`}, Error{Class: Rejected, Code: "no_text"}},
	}
)

// The fake Slack sends every response, through slack-go or the webhook.
func TestClasses(t *testing.T) {
	for i, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s := startSlack(t)
			p := newPoster(t, way.config(s))
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

// Webhooks of workflows respond with JSON. Classifying their success as ambiguous would repeat the post
// forever.
func TestWebhookThatAnswersJSON(t *testing.T) {
	s := startSlack(t)
	s.Respond(devstack.Next(devstack.Response{Body: `{"ok":true}`}))
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
		{"", "", 0},
		{"30", "", 30 * time.Second},
		{" 30 ", "", 30 * time.Second},
		{"1.5", "", 1500 * time.Millisecond},
		{"-3", "", minRetryAfter},
		{"1e999", "", 0},
		{"0", "", minRetryAfter},
		{"NaN", "", 0},
		{"+Inf", "", MaxRetryAfter},
		{"1e300", "", MaxRetryAfter},
		{"tomorrow", "", 0},
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
