package slackout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"notifier/internal/cause"
)

// Bounds of Slack's Retry-After. A header above the maximum is assumed to be the mistake of a proxy.
const (
	minRetryAfter = time.Second
	MaxRetryAfter = time.Hour // and a pause in Redis can be no longer
)

// longWait is for conditions from which Slack takes many minutes to recover.
const longWait = 10 * time.Minute

// meaning describes the consequence of an error code for the event.
type meaning struct {
	class Class

	// Of the class Rejected:
	channel  bool // Slack refuses the channel: it would refuse any other message there as well
	metadata bool // Slack refuses the metadata, which is ours and not the event's: see Poster.Post

	// Of the class Retry: an outage this long affects the whole workspace.
	wait time.Duration // Error.RetryAfter if Slack names no time

	// Of the class Credentials: the token is refused for the one method that was called, or the method itself
	// is. A token that is refused for reading the history may still be valid for chat.postMessage, and the
	// reverse.
	method bool
}

// codes maps Slack's error codes to their consequence for the event. It covers the Web API and webhooks; a
// code means the same from both. It has every code that Slack documents, and some that Slack only returns:
//
//   - https://docs.slack.dev/reference/methods/chat.postMessage, "Errors", as of November 2026
//   - https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks, "Handling errors", and
//     https://api.slack.com/changelog/2016-05-17-changes-to-errors-for-incoming-webhooks
//
// Where the documents leave the culprit open, this question decides: would another event meet the same code?
// A code that all events of a channel would meet is the channel's, else the first archived channel or
// unticked box turns a whole queue into dead letters that are blamed on their publishers.
var codes = map[string]meaning{
	"ratelimited":  {class: RetryAfter},
	"rate_limited": {class: RetryAfter},

	"service_unavailable":    {class: Retry},
	"rollup_error":           {class: Retry},
	"message_limit_exceeded": {class: Retry, wait: longWait}, // the whole workspace sends too much
	"team_added_to_org":      {class: Retry, wait: longWait}, // the workspace is being migrated
	"org_login_required":     {class: Retry, wait: longWait}, // likewise

	// The form of the request is this package's, the same for all events. If Slack cannot read it, something on
	// the way has changed it, which is a reason to hold events. If one event provokes it, the caller notices
	// that others pass.
	"invalid_arg_name":  {class: Retry},
	"invalid_array_arg": {class: Retry},
	"invalid_charset":   {class: Retry},
	"invalid_form_data": {class: Retry},
	"invalid_post_type": {class: Retry},
	"missing_post_type": {class: Retry},

	// Slack documents these as errors after which part of the work may have been done.
	"internal_error":  {class: Ambiguous},
	"fatal_error":     {class: Ambiguous},
	"request_timeout": {class: Ambiguous},

	"invalid_auth":              {class: Credentials},
	"not_authed":                {class: Credentials},
	"token_revoked":             {class: Credentials},
	"token_expired":             {class: Credentials},
	"account_inactive":          {class: Credentials},
	"two_factor_setup_required": {class: Credentials},
	"team_access_not_granted":   {class: Credentials},
	"accesslimited":             {class: Credentials}, // not from this network
	"missing_scope":             {class: Credentials, method: true},
	"not_allowed_token_type":    {class: Credentials, method: true},
	"enterprise_is_restricted":  {class: Credentials, method: true},
	"app_access_restricted":     {class: Credentials}, // by an administrator of the workspace
	"unknown_method": {
		class:  Credentials,
		method: true,
	}, // for a post: the API URL does not lead to Slack's Web API
	"deprecated_endpoint": {class: Credentials, method: true},
	"method_deprecated":   {class: Credentials, method: true},
	"invalid_token":       {class: Credentials}, // from here on: the webhook itself is deleted or disabled
	"action_prohibited":   {class: Credentials},
	"no_service":          {class: Credentials},
	"no_service_id":       {class: Credentials},
	"no_active_hooks":     {class: Credentials},
	"no_team":             {class: Credentials},
	"team_disabled":       {class: Credentials},

	"channel_not_found":                   {class: Rejected, channel: true},
	"not_in_channel":                      {class: Rejected, channel: true},
	"is_archived":                         {class: Rejected, channel: true},
	"channel_is_archived":                 {class: Rejected, channel: true},
	"user_not_found":                      {class: Rejected, channel: true}, // whom a direct message was for
	"no_permission":                       {class: Rejected, channel: true},
	"access_denied":                       {class: Rejected, channel: true},
	"ekm_access_denied":                   {class: Rejected, channel: true},
	"restricted_action":                   {class: Rejected, channel: true},
	"restricted_action_read_only_channel": {class: Rejected, channel: true},
	"posting_to_general_channel_denied":   {class: Rejected, channel: true},
	"messages_tab_disabled":               {class: Rejected, channel: true}, // direct messages of the app are off
	"team_not_found":                      {class: Rejected, channel: true}, // a token of several workspaces needs the ID

	// The first four depend on whether the message is a reply: Slack may accept other messages in the same
	// channel.
	"restricted_action_thread_only_channel":    {class: Rejected},
	"restricted_action_non_threadable_channel": {class: Rejected},
	"restricted_action_thread_locked":          {class: Rejected},
	"cannot_reply_to_message":                  {class: Rejected},
	"message_not_found":                        {class: Rejected},
	"no_text":                                  {class: Rejected},
	"msg_too_long":                             {class: Rejected},
	"invalid_blocks":                           {class: Rejected},
	"invalid_blocks_format":                    {class: Rejected},
	"invalid_attachments":                      {class: Rejected},
	"invalid_block_type":                       {class: Rejected},
	"msg_blocks_too_long":                      {class: Rejected},
	"too_many_attachments":                     {class: Rejected},
	"too_many_contact_cards":                   {class: Rejected},
	"attachment_payload_limit_exceeded":        {class: Rejected},
	"slack_connect_file_link_sharing_blocked":  {class: Rejected},
	"slack_connect_canvas_sharing_blocked":     {class: Rejected},
	"slack_connect_lists_sharing_blocked":      {class: Rejected},
	"invalid_payload":                          {class: Rejected},
	"invalid_arguments":                        {class: Rejected}, // more likely with blocks, Slack says
	"missing_file_data":                        {class: Rejected}, // of a file in the blocks

	// These are about arguments that no post of this package has.
	"agent_prompt_display_not_allowed": {class: Rejected},
	"as_user_not_supported":            {class: Rejected},
	"draft_already_deleted":            {class: Rejected},
	"draft_already_sent":               {class: Rejected},
	"draft_has_conflict":               {class: Rejected},
	"draft_not_found":                  {class: Rejected},
	"duplicate_channel_not_found":      {class: Rejected},
	"duplicate_message_not_found":      {class: Rejected},
	"markdown_text_conflict":           {class: Rejected},
	"send_on_behalf_not_allowed":       {class: Rejected},

	"metadata_too_large":             {class: Rejected, metadata: true},
	"invalid_metadata_format":        {class: Rejected, metadata: true},
	"invalid_metadata_schema":        {class: Rejected, metadata: true},
	"metadata_must_be_sent_from_app": {class: Rejected, metadata: true}, // legacy tokens may not send any
}

// meaningOf looks a code up, and reports whether it is in the table. An unknown one is a permanent rejection:
// Slack has not posted the message, and a new code is far more likely about a message or a channel than about
// the service; the event is kept as a dead letter with the code. It does not count against the channel: one
// publisher's messages must not close it to others. Only a code that sounds like a problem on Slack's side is
// retried.
func meaningOf(code string) (m meaning, known bool) {
	if m, known = codes[code]; known {
		return m, true
	}
	switch {
	case strings.HasSuffix(code, "_error"),
		strings.HasSuffix(code, "_timeout"),
		strings.HasSuffix(code, "_timed_out"):
		return meaning{class: Ambiguous}, false
	case strings.HasSuffix(code, "unavailable"), strings.HasSuffix(code, "try_again_later"):
		return meaning{class: Retry}, false
	}
	return meaning{class: Rejected}, false
}

// reply is the response to a post, by either way of posting.
type reply struct {
	OK      *bool  `json:"ok"` // nil if the response is not Slack's
	Error   string `json:"error"`
	Channel string `json:"channel"`
	TS      string `json:"ts"`

	// These are decoded separately: an unknown form of them must not make the response to a successful post
	// unreadable.
	Message  json.RawMessage `json:"message"` // the echo of the message
	Errors   json.RawMessage `json:"errors"`
	Metadata json.RawMessage `json:"response_metadata"`
}

// explanation returns Slack's description of a mistake. Slack sends it in response_metadata.messages, and for
// some codes in errors.
func (r reply) explanation() string {
	var metadata struct {
		Messages []string `json:"messages"`
	}
	_ = json.Unmarshal(r.Metadata, &metadata)
	messages := metadata.Messages
	if len(messages) == 0 {
		_ = json.Unmarshal(r.Errors, &messages)
	}
	return strings.Join(messages, "; ")
}

// codeShape is the form of Slack's codes. Anything else in their place is not shown: the error page of a
// proxy could quote the webhook's URL.
var codeShape = regexp.MustCompile(`^[a-z][a-z0-9_]{1,63}$`)

// classifyAPI classifies a response of the Web API: JSON, nearly always with status 200.
func classifyAPI(x *exchange) (reply, *Error) {
	if x.status == 0 {
		return reply{}, classifyNoResponse(x)
	}
	var r reply
	readable := x.err == nil && json.Unmarshal(x.body, &r) == nil
	code := r.Error
	if code != "" && !codeShape.MatchString(code) {
		code = "unknown_code"
	}
	if x.status/100 != 2 {
		failure := classifyStatus(x, code)
		failure.Explanation = r.explanation()
		return reply{}, failure
	}
	switch {
	case x.err != nil:
		return reply{}, unreadable(x)
	case !readable || r.OK == nil: // such as a proxy's page: whether Slack got the request is unknown
		return reply{}, foreign(x)
	case *r.OK:
		return r, nil
	case code == "": // "not ok" without a reason, which does not justify rejecting the event
		return reply{}, &Error{Class: Ambiguous, Code: "no_code"}
	}
	failure := classifyCode(x, code)
	failure.Explanation = r.explanation()
	return reply{}, failure
}

// classifyWebhook classifies a response of an incoming webhook: the word "ok", or a status and a code as
// plain text. Webhooks that start a workflow respond with JSON.
func classifyWebhook(x *exchange) (reply, *Error) {
	if x.status == 0 {
		return reply{}, classifyNoResponse(x)
	}
	text := string(bytes.TrimSpace(x.body))
	if strings.HasPrefix(text, "{") {
		return classifyAPI(x)
	}
	code := ""
	if x.err == nil && codeShape.MatchString(text) {
		code = text
	}
	if x.status/100 == 2 {
		_, known := codes[code]
		switch {
		case x.err != nil:
			return reply{}, unreadable(x)
		case text == "ok":
			return reply{OK: new(true)}, nil
		case known:
			return reply{}, classifyCode(x, code)
		}
		return reply{}, foreign(x)
	}
	if _, known := codes[code]; code != "" && !known {
		switch x.status {
		case http.StatusBadRequest: // by Slack's own code this payload is invalid
			return reply{}, &Error{Class: Rejected, Code: code} // as for any unknown code
		case http.StatusForbidden, http.StatusNotFound, http.StatusGone: // and this webhook is
			return reply{}, &Error{Class: Credentials, Code: code, Workspace: true}
		}
	}
	return reply{}, classifyStatus(x, code)
}

// unreadable classifies a 2xx response that could not be read to its end: it was cut off halfway, or is
// longer than any of Slack's. Something has processed the request, so the message may be posted. The part
// that was read is ignored: the beginning of a response is not Slack's, even if it says ok.
func unreadable(x *exchange) *Error {
	if errors.Is(x.err, errReplyTooLong) {
		return foreign(x)
	}
	return networkError(Ambiguous, x.err)
}

// classifyStatus classifies a response that is not 2xx. A code in the table is more specific than the status.
//
// Without such a code, a status of 500 or more proves nothing: Slack may have failed after it had stored the
// message, and a gateway loses responses, not requests. Nor does the Retry-After of a 503 count: Slack
// documents it with a 429 alone, so it is the guess of a gateway or its maintenance page, which can be an
// hour too long. The caller tries one post at a time, and backs off.
func classifyStatus(x *exchange, code string) *Error {
	if _, known := codes[code]; known {
		return classifyCode(x, code)
	}
	failure := &Error{Class: Retry, Code: "http_" + strconv.Itoa(x.status)}
	switch {
	case x.status == http.StatusTooManyRequests:
		return classifyCode(x, "ratelimited")
	case x.status >= http.StatusInternalServerError:
		failure.Class = Ambiguous
	case x.status == http.StatusRequestEntityTooLarge: // a retry is just as large
		failure.Class = Rejected
	}
	// With any other status the event is held. A redirect, or a 404 without one of Slack's codes, means that
	// the URL is wrong or that a proxy responded: a mistake in the settings must not cost the events in the
	// queue.
	return failure
}

func classifyCode(x *exchange, code string) *Error {
	m, _ := meaningOf(code)
	failure := &Error{Class: m.class, Code: code, RetryAfter: m.wait, ChannelRefused: m.channel}
	failure.Workspace = m.class == Credentials || m.wait > 0
	if m.class == RetryAfter {
		failure.RetryAfter = retryAfter(x.header, time.Now())
	}
	return failure
}

// retryAfter parses the Retry-After header of a 429, in seconds or as a date, and bounds it to
// [minRetryAfter, MaxRetryAfter]. It is 0 without a valid header: Slack has named no time, and a guess would
// be too long or too short.
func retryAfter(h http.Header, now time.Time) time.Duration {
	var wait time.Duration
	value := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds == seconds {
		wait = time.Duration(min(max(seconds, 0), MaxRetryAfter.Seconds()) * float64(time.Second))
	} else if at, err := http.ParseTime(value); err == nil {
		// By the sender's clock if the response has it: ours may differ.
		if date, err := http.ParseTime(h.Get("Date")); err == nil {
			now = date
		}
		wait = at.Sub(now)
	} else {
		return 0
	}
	return min(max(wait, minRetryAfter), MaxRetryAfter)
}

// classifyNoResponse classifies an exchange without a response: certainly not posted, or possibly posted.
func classifyNoResponse(x *exchange) *Error {
	failure := networkError(Retry, x.err)
	// A request without a response may have been blocked on the way to Slack.
	failure.Workspace = !x.sent.Load()
	switch {
	case x.sent.Load():
		failure.Class = Ambiguous
	case x.noTLS.Load() && failure.Code != "timeout" && failure.Code != "canceled":
		failure.Code = "tls_error"
		failure.Cause, failure.Explanation = cause.OfSystemRoots(x.err)
	}
	return failure
}

// networkError describes a failure below HTTP by its code. Where the code leaves the cause open, or takes the
// proxy for Slack, the Explanation names the cause.
func networkError(class Class, err error) *Error {
	failure := &Error{Class: class, Code: networkCode(err), Cause: cause.Of(err)}
	explained := failure.Code == "network_error" || failure.Code == "dns_error"
	if explained || failure.Cause == cause.Proxy {
		failure.Explanation = cause.Text(err)
	}
	return failure
}

// networkCode names the failure below HTTP.
func networkCode(err error) string {
	var (
		dns     *net.DNSError
		netErr  net.Error
		refusal proxyRefusal
	)
	switch {
	case errors.As(err, &refusal):
		return refusal.Error()
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return "timeout"
	case errors.As(err, &dns):
		return "dns_error"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection_refused"
	case errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE),
		errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF):
		return "connection_reset"
	}
	return "network_error"
}
