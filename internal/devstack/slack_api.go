package devstack

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"
)

// maxBody bounds a request, in bytes. Slack's largest messages take a few hundred kilobytes as a form.
const maxBody = 4 << 20

// webhookStatus is the HTTP status for a code of an incoming webhook; any other code has 400.
var webhookStatus = map[string]int{
	"action_prohibited": http.StatusForbidden, "invalid_token": http.StatusForbidden,
	"posting_to_general_channel_denied": http.StatusForbidden,
	"channel_not_found":                 http.StatusNotFound, "no_service": http.StatusNotFound,
	"no_active_hooks": http.StatusNotFound, "no_team": http.StatusNotFound,
	"channel_is_archived": http.StatusGone,
	"rollup_error":        http.StatusInternalServerError,
	"ratelimited":         http.StatusTooManyRequests, "rate_limited": http.StatusTooManyRequests,
}

const (
	methodPost    = "chat.postMessage"
	methodWebhook = "webhook"
)

func (s *Slack) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/"+methodPost, s.postMessage)
	mux.HandleFunc("POST /api/auth.test", s.authTest)
	mux.HandleFunc("POST /api/conversations.history", s.conversation(s.channelMessages))
	mux.HandleFunc("POST /api/conversations.replies", s.conversation(s.threadMessages))
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		writeAPI(w, http.StatusOK, map[string]any{
			"ok": false, "error": "unknown_method", "req_method": strings.TrimPrefix(r.URL.Path, "/api/"),
		})
	})
	mux.HandleFunc("POST /services/", s.postWebhook)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /fake/faults", s.showFaults)
	mux.HandleFunc("POST /fake/faults", s.changeFaults)
	s.inboxRoutes(mux)
	// A page of another site must not drive the fake through a user's browser; programs may.
	own := http.NewCrossOriginProtection()
	for _, pattern := range []string{"/api/", "/services/"} { // like Slack's
		own.AddInsecureBypassPattern(pattern)
	}
	guarded := own.Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.enter() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer s.handlers.Done()
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		guarded.ServeHTTP(w, r)
	})
}

// postMessage handles chat.postMessage of the Web API.
func (s *Slack) postMessage(w http.ResponseWriter, r *http.Request) {
	form, code := authorised(r)
	m := newMessage("api", r, form)
	explanation := ""
	if code == "" {
		code, explanation = m.problem()
	}
	if code == "" && m.Channel == "" {
		code = "channel_not_found"
	}
	s.respond(w, r, Request{methodPost, m}, code, func(a reply) {
		switch {
		case a.code == "":
			writeAPI(w, a.status, map[string]any{
				"ok": true, "channel": channelID(m.Channel), "ts": a.message.TS, "message": a.message.stored(false),
			})
		case explanation != "":
			writeAPI(w, a.status, map[string]any{
				"ok":                false,
				"error":             a.code,
				"response_metadata": map[string]any{"messages": []string{"[ERROR] " + explanation}},
			})
		default:
			writeError(w, a)
		}
	})
}

// postWebhook handles a post to the incoming webhook.
func (s *Slack) postWebhook(w http.ResponseWriter, r *http.Request) {
	form, err := readArguments(r)
	if payload := form["payload"]; err == nil && payload != "" {
		form, err = fromJSON([]byte(payload))
	}
	secret, found := strings.CutPrefix(r.URL.Path, webhookBase)
	m := newMessage("webhook", r, form)
	if m.Channel == "" {
		m.Channel = "webhook"
	}
	code := ""
	switch {
	case !found:
		code = "no_service"
	case secret != webhookSecret:
		code = "invalid_token"
	case err != nil:
		code = "invalid_payload"
	default:
		code, _ = m.problem()
	}
	s.respond(w, r, Request{methodWebhook, m}, code, func(a reply) {
		if a.code == "" {
			writeText(w, a.status, "ok")
			return
		}
		if a.status == http.StatusOK {
			a.status = cmp.Or(webhookStatus[a.code], http.StatusBadRequest)
		}
		writeText(w, a.status, a.code)
	})
}

// authTest handles auth.test of the Web API.
func (s *Slack) authTest(w http.ResponseWriter, r *http.Request) {
	form, code := authorised(r)
	if code == "" {
		w.Header().Set("X-OAuth-Scopes", "chat:write,channels:history")
	}
	s.respond(w, r, Request{"auth.test", newMessage("api", r, form)}, code, func(a reply) {
		if a.code != "" {
			writeError(w, a)
			return
		}
		writeAPI(w, a.status, map[string]any{
			"ok": true, "url": s.url + "/", "team": "Fake Workspace", "user": "notifier",
			"team_id": "T000", "user_id": "U000", "bot_id": botID,
		})
	})
}

// authorised reads the arguments of a call of the Web API, and returns Slack's code if they or the token are
// invalid; else "".
func authorised(r *http.Request) (form map[string]string, code string) {
	form, err := readArguments(r)
	if err != nil {
		return form, "invalid_form_data"
	}
	return form, tokenProblem(r, form)
}

func tokenProblem(r *http.Request, form map[string]string) string {
	token := form["token"]
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		token = bearer
	}
	switch {
	case token == "":
		return "not_authed"
	case strings.Contains(token, "revoked"):
		return "token_revoked"
	case !strings.HasPrefix(token, "xoxb-"):
		return "invalid_auth"
	}
	return ""
}

// readArguments reads a request's arguments from a form or a JSON object; strings lose their quotes, any
// other JSON stays JSON.
func readArguments(r *http.Request) (map[string]string, error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "application/json" {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		return fromJSON(body)
	}
	if err := r.ParseForm(); err != nil {
		return nil, err
	}
	form := make(map[string]string, len(r.PostForm))
	for name := range r.PostForm {
		form[name] = r.PostForm.Get(name)
	}
	return form, nil
}

func fromJSON(body []byte) (map[string]string, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	if fields == nil {
		return nil, errors.New("not a JSON object")
	}
	form := make(map[string]string, len(fields))
	for name, value := range fields {
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		form[name] = text
	}
	return form, nil
}

func newMessage(via string, r *http.Request, form map[string]string) Message {
	m := Message{
		Via: via, Channel: form["channel"], Text: form["text"], ThreadTS: form["thread_ts"],
		Form: map[string]string{}, Header: r.Header.Clone(),
	}
	m.Header.Del("Authorization")
	for name, value := range form {
		if name != "token" {
			m.Form[name] = value
		}
	}
	if blocks := form["blocks"]; blocks != "" {
		m.Blocks = json.RawMessage(blocks)
	}
	if metadata := form["metadata"]; metadata != "" && via == "api" { // an incoming webhook ignores it
		m.Metadata = json.RawMessage(metadata)
	}
	if utf8.RuneCountInString(m.Text) > 40_000 { // Slack cuts without an error
		m.Text = string([]rune(m.Text)[:40_000])
	}
	return m
}

// problem returns Slack's error code for a message and its explanation, or "".
func (m Message) problem() (code, explanation string) {
	if m.Metadata != nil && !json.Valid(m.Metadata) {
		return "invalid_metadata_format", ""
	}
	if m.Blocks == nil {
		if strings.TrimSpace(m.Text) == "" && m.Form["attachments"] == "" {
			return "no_text", ""
		}
		return "", ""
	}
	var blocks []struct {
		Type   string          `json:"type"`
		Text   json.RawMessage `json:"text"`
		Fields []textObject    `json:"fields"`
	}
	if json.Unmarshal(m.Blocks, &blocks) != nil {
		return "invalid_blocks_format", ""
	}
	if len(blocks) > 50 {
		return "invalid_blocks", "no more than 50 items allowed [json-pointer:/blocks]"
	}
	for i, block := range blocks {
		var text textObject
		_ = json.Unmarshal(block.Text, &text)
		limit := map[string]int{"header": 150, "section": 3000}[block.Type]
		if block.Type == "" {
			return "invalid_blocks", fmt.Sprintf("missing required field: type [json-pointer:/blocks/%d]", i)
		}
		if limit > 0 && text.length() > limit {
			return "invalid_blocks", tooLong(limit, fmt.Sprintf("/blocks/%d/text/text", i))
		}
		for n, field := range block.Fields {
			if field.length() > 2000 {
				return "invalid_blocks", tooLong(2000, fmt.Sprintf("/blocks/%d/fields/%d/text", i, n))
			}
		}
	}
	return "", ""
}

func tooLong(limit int, pointer string) string {
	return fmt.Sprintf("must be less than %d characters [json-pointer:%s]", limit+1, pointer)
}

type textObject struct {
	Text string `json:"text"`
}

func (t textObject) length() int { return utf8.RuneCountInString(t.Text) }

func writeAPI(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func writeError(w http.ResponseWriter, a reply) {
	writeAPI(w, a.status, map[string]any{"ok": false, "error": a.code})
}

// writeText keeps a Content-Type that is set already.
func writeText(w http.ResponseWriter, status int, body string) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}
