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
	{`service_unavailable rollup_error invalid_arg_name invalid_array_arg invalid_charset invalid_form_data
		invalid_post_type missing_post_type`, Error{Class: Retry}},
	{"message_limit_exceeded team_added_to_org org_login_required", Error{Class: Retry, RetryAfter: 10 * time.Minute}},
	{"internal_error fatal_error request_timeout", Error{Class: Ambiguous}},
	{`invalid_auth not_authed token_revoked token_expired account_inactive missing_scope not_allowed_token_type
		two_factor_setup_required team_access_not_granted accesslimited enterprise_is_restricted unknown_method
		deprecated_endpoint method_deprecated invalid_token action_prohibited no_service no_service_id no_active_hooks
		no_team team_disabled app_access_restricted`, Error{Class: Credentials}},
	{`channel_not_found not_in_channel is_archived channel_is_archived user_not_found no_permission access_denied
		ekm_access_denied restricted_action restricted_action_read_only_channel posting_to_general_channel_denied
		messages_tab_disabled team_not_found`,
		Error{Class: Rejected, ChannelRefused: true}},
	{`restricted_action_thread_only_channel restricted_action_non_threadable_channel restricted_action_thread_locked
		cannot_reply_to_message message_not_found no_text msg_too_long invalid_blocks invalid_blocks_format
		invalid_attachments invalid_block_type msg_blocks_too_long too_many_attachments invalid_payload
		invalid_arguments too_many_contact_cards attachment_payload_limit_exceeded slack_connect_file_link_sharing_blocked slack_connect_canvas_sharing_blocked
		slack_connect_lists_sharing_blocked missing_file_data agent_prompt_display_not_allowed as_user_not_supported
		draft_already_deleted draft_already_sent draft_has_conflict draft_not_found duplicate_channel_not_found
		duplicate_message_not_found markdown_text_conflict send_on_behalf_not_allowed`,
		Error{Class: Rejected}},
	{metadataCodes, Error{Class: Rejected}}, // of a message without metadata; else see TestRefusedMetadata
}

const metadataCodes = "metadata_too_large invalid_metadata_format invalid_metadata_schema metadata_must_be_sent_from_app"

// documented lists the codes of Slack's documents; class.go names the pages.
const documented = `
	access_denied accesslimited account_inactive agent_prompt_display_not_allowed app_access_restricted
	as_user_not_supported attachment_payload_limit_exceeded cannot_reply_to_message channel_not_found
	deprecated_endpoint draft_already_deleted draft_already_sent draft_has_conflict draft_not_found
	duplicate_channel_not_found duplicate_message_not_found ekm_access_denied enterprise_is_restricted fatal_error
	internal_error invalid_arg_name invalid_arguments invalid_array_arg invalid_auth invalid_blocks
	invalid_blocks_format invalid_charset invalid_form_data invalid_metadata_format invalid_metadata_schema
	invalid_post_type is_archived markdown_text_conflict message_limit_exceeded messages_tab_disabled
	metadata_must_be_sent_from_app metadata_too_large method_deprecated missing_file_data missing_post_type
	missing_scope msg_blocks_too_long msg_too_long no_permission no_text not_allowed_token_type not_authed
	not_in_channel org_login_required rate_limited ratelimited request_timeout restricted_action
	restricted_action_non_threadable_channel restricted_action_read_only_channel restricted_action_thread_locked
	restricted_action_thread_only_channel send_on_behalf_not_allowed service_unavailable
	slack_connect_canvas_sharing_blocked slack_connect_file_link_sharing_blocked slack_connect_lists_sharing_blocked
	team_access_not_granted team_added_to_org team_not_found token_expired token_revoked too_many_attachments
	too_many_contact_cards two_factor_setup_required

	action_prohibited channel_is_archived channel_not_found invalid_payload invalid_token no_active_hooks no_service
	no_service_id no_team no_text posting_to_general_channel_denied rollup_error team_disabled too_many_attachments
	user_not_found`

// TestDocumentedCodes: none has its class by the guess for unknown codes.
func TestDocumentedCodes(t *testing.T) {
	for _, code := range strings.Fields(documented) {
		if _, known := codes[code]; !known {
			t.Errorf("%s has no class", code)
		}
	}
}

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
		{devstack.Response{Status: 503, RetryAfter: "3600"}, Error{Class: Ambiguous, Code: "http_503"}},
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
