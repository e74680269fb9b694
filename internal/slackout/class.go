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
)

// The bounds of a wait that Slack asks for. Without a readable Retry-After the default holds: half of the minute
// over which Slack counts. Above the maximum the header is taken for an error of some proxy.
const (
	minRetryAfter     = time.Second
	defaultRetryAfter = 30 * time.Second
	maxRetryAfter     = time.Hour
)

// longWait is for what Slack needs many minutes to get over.
const longWait = 10 * time.Minute

// codes is the table: what Slack's error codes mean for the event. Both the Web API's and the webhooks' are here;
// a code means the same from either.
var codes = map[string]Class{
	"ratelimited":  RetryAfter,
	"rate_limited": RetryAfter,

	"service_unavailable":    Retry,
	"rollup_error":           Retry,
	"message_limit_exceeded": Retry, // longWait: the whole workspace sends too much
	"team_added_to_org":      Retry, // longWait: the workspace is being migrated
	"org_login_required":     Retry, // longWait: likewise

	// Slack says of these that part of the work may have been done.
	"internal_error":  Ambiguous,
	"fatal_error":     Ambiguous,
	"request_timeout": Ambiguous,

	"invalid_auth":              Credentials,
	"not_authed":                Credentials,
	"token_revoked":             Credentials,
	"token_expired":             Credentials,
	"account_inactive":          Credentials,
	"missing_scope":             Credentials,
	"not_allowed_token_type":    Credentials,
	"two_factor_setup_required": Credentials,
	"team_access_not_granted":   Credentials,
	"accesslimited":             Credentials, // not from this network
	"enterprise_is_restricted":  Credentials,
	"unknown_method":            Credentials, // the API URL is not that of Slack's Web API
	"deprecated_endpoint":       Credentials,
	"method_deprecated":         Credentials,
	"invalid_token":             Credentials, // from here on: the webhook itself is gone or shut off
	"action_prohibited":         Credentials,
	"no_service":                Credentials,
	"no_service_id":             Credentials,
	"no_active_hooks":           Credentials,
	"no_team":                   Credentials,
	"team_disabled":             Credentials,

	"channel_not_found":                        Rejected,
	"not_in_channel":                           Rejected,
	"is_archived":                              Rejected,
	"channel_is_archived":                      Rejected,
	"user_not_found":                           Rejected,
	"no_permission":                            Rejected,
	"access_denied":                            Rejected,
	"ekm_access_denied":                        Rejected,
	"restricted_action":                        Rejected,
	"restricted_action_read_only_channel":      Rejected,
	"restricted_action_thread_only_channel":    Rejected,
	"restricted_action_non_threadable_channel": Rejected,
	"restricted_action_thread_locked":          Rejected,
	"posting_to_general_channel_denied":        Rejected,
	"cannot_reply_to_message":                  Rejected,
	"message_not_found":                        Rejected,
	"no_text":                                  Rejected,
	"msg_too_long":                             Rejected,
	"invalid_blocks":                           Rejected,
	"invalid_blocks_format":                    Rejected,
	"invalid_block_type":                       Rejected,
	"msg_blocks_too_long":                      Rejected,
	"too_many_attachments":                     Rejected,
	"metadata_too_large":                       Rejected,
	"invalid_payload":                          Rejected,
	"invalid_arguments":                        Rejected,
}

// classOf puts a code into its class, and says whether the table knows it. An unknown one is a refusal for good:
// Slack said "not posted", and a new code is far more likely about a message than about the service; the event is
// kept as a dead letter with the code on it. Only one that sounds like trouble on Slack's side is tried again.
func classOf(code string) (class Class, known bool) {
	if class, known = codes[code]; known {
		return class, true
	}
	switch {
	case strings.HasSuffix(code, "_error"), strings.HasSuffix(code, "_timeout"), strings.HasSuffix(code, "_timed_out"):
		return Ambiguous, false
	case strings.HasSuffix(code, "unavailable"), strings.HasSuffix(code, "try_again_later"):
		return Retry, false
	}
	return Rejected, false
}

// reply is what the two ways of posting answer.
type reply struct {
	OK      bool   `json:"ok"`
	Error   string `json:"error"`
	Channel string `json:"channel"`
	TS      string `json:"ts"`
}

// codeShape is how Slack's codes look. Anything else in their place is not shown: a page of some proxy could
// quote the webhook's URL.
var codeShape = regexp.MustCompile(`^[a-z][a-z0-9_]{1,63}$`)

// classifyAPI judges an answer of the Web API: JSON, with status 200 nearly always.
func classifyAPI(x *exchange) (reply, *Error) {
	if x.status == 0 {
		return reply{}, unanswered(x)
	}
	var r reply
	readable := x.err == nil && json.Unmarshal(x.body, &r) == nil
	code := r.Error
	if code != "" && !codeShape.MatchString(code) {
		code = "unknown_code"
	}
	if x.status/100 != 2 {
		return reply{}, refused(x, code)
	}
	switch {
	case x.err != nil: // cut off halfway
		return reply{}, &Error{Class: Ambiguous, Code: networkCode(x.err)}
	case !readable: // such as a proxy's page: nobody knows what was behind it
		return reply{}, &Error{Class: Ambiguous, Code: "invalid_response"}
	case r.OK:
		return r, nil
	case code == "": // "not ok" without a reason, and no ground to give the event up
		return reply{}, &Error{Class: Ambiguous, Code: "no_code"}
	}
	return reply{}, byCode(x, code)
}

// classifyWebhook judges an answer of an incoming webhook: the word "ok", or a status and a code as plain text.
// Those of the newer kind, which start a workflow, answer JSON.
func classifyWebhook(x *exchange) (reply, *Error) {
	if x.status == 0 {
		return reply{}, unanswered(x)
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
			return reply{}, &Error{Class: Ambiguous, Code: networkCode(x.err)}
		case text == "ok":
			return reply{OK: true}, nil
		case known:
			return reply{}, byCode(x, code)
		}
		return reply{}, &Error{Class: Ambiguous, Code: "invalid_response"}
	}
	if _, known := codes[code]; code != "" && !known {
		switch x.status {
		case http.StatusBadRequest: // Slack's word that this payload is wrong
			return reply{}, &Error{Class: Rejected, Code: code}
		case http.StatusForbidden, http.StatusNotFound, http.StatusGone: // and that this webhook is
			return reply{}, &Error{Class: Credentials, Code: code}
		}
	}
	return reply{}, refused(x, code)
}

// refused judges an answer that is not 2xx. A code of the table says more than the status.
func refused(x *exchange, code string) *Error {
	if _, known := codes[code]; known {
		return byCode(x, code)
	}
	failure := &Error{Class: Retry, Code: "http_" + strconv.Itoa(x.status)}
	switch x.status {
	case http.StatusTooManyRequests:
		return byCode(x, "ratelimited")
	case http.StatusBadGateway, http.StatusGatewayTimeout, 520, 524:
		// A gateway lost the answer, not the request: Slack may have posted it.
		failure.Class = Ambiguous
	case http.StatusRequestEntityTooLarge: // will not get smaller
		failure.Class = Rejected
	}
	// The rest is held. A redirect or a 404 that is not in Slack's words means that the URL is wrong or that
	// something stands between: a mistake in the settings must not throw the queue away.
	return failure
}

func byCode(x *exchange, code string) *Error {
	class, _ := classOf(code)
	failure := &Error{Class: class, Code: code}
	switch code {
	case "message_limit_exceeded", "team_added_to_org", "org_login_required":
		failure.RetryAfter = longWait
	}
	if class == RetryAfter {
		failure.RetryAfter = retryAfter(x.header, time.Now())
	}
	return failure
}

// retryAfter reads the Retry-After header, in seconds or as a date, into [minRetryAfter, maxRetryAfter].
func retryAfter(h http.Header, now time.Time) time.Duration {
	wait := defaultRetryAfter
	value := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds == seconds {
		wait = time.Duration(min(max(seconds, 0), maxRetryAfter.Seconds()) * float64(time.Second))
	} else if at, err := http.ParseTime(value); err == nil {
		// By the sender's clock where it is given: ours may differ.
		if date, err := http.ParseTime(h.Get("Date")); err == nil {
			now = date
		}
		wait = at.Sub(now)
	}
	return min(max(wait, minRetryAfter), maxRetryAfter)
}

// unanswered judges an exchange without an answer: posted for certain not, or perhaps.
func unanswered(x *exchange) *Error {
	failure := &Error{Class: Retry, Code: networkCode(x.err)}
	switch {
	case x.sent.Load():
		failure.Class = Ambiguous
	case x.noTLS.Load() && failure.Code != "timeout" && failure.Code != "canceled":
		failure.Code = "tls_error"
	}
	return failure
}

// networkCode names what went wrong below HTTP. Only the name goes on: the error itself holds the URL.
func networkCode(err error) string {
	var (
		dns    *net.DNSError
		netErr net.Error
	)
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return "timeout"
	case errors.As(err, &dns):
		return "dns_error"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection_refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection_reset"
	case errors.Is(err, errReplyTooLong):
		return "invalid_response"
	}
	return "network_error"
}
