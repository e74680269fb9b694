package devstack

import (
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

func (s *Slack) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/chat.postMessage", s.postMessage)
	mux.HandleFunc("POST /api/auth.test", s.authTest)
	s.historyRoutes(mux)
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		writeAPI(w, http.StatusOK, map[string]any{
			"ok": false, "error": "unknown_method", "req_method": strings.TrimPrefix(r.URL.Path, "/api/"),
		})
	})
	mux.HandleFunc("POST /services/", s.postWebhook)
	mux.HandleFunc(
		"GET /healthz",
		func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") },
	)
	mux.HandleFunc("POST /fake/next", s.setBehaviour(func(b []Behaviour) { s.Next(b...) }))
	mux.HandleFunc("POST /fake/always", s.setBehaviour(func(b []Behaviour) { s.Always(b[len(b)-1]) }))
	mux.HandleFunc("GET /fake/stats", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		stats := map[string]int{
			"requests": s.requests,
			"accepted": s.accepted,
			"queued":   len(s.next),
			"history":  s.historyRequests,
		}
		s.mu.Unlock()
		writeAPI(w, http.StatusOK, stats)
	})
	s.modeRoutes(mux)
	s.inboxRoutes(mux)
	// A page of another site must not drive the fake of a browser's user; programs may.
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
	s.treat(w, r, m, code, func(status int, code string, m Message) {
		if code != "" {
			answer := map[string]any{"ok": false, "error": code}
			if explanation != "" {
				answer["response_metadata"] = map[string]any{"messages": []string{"[ERROR] " + explanation}}
			}
			writeAPI(w, status, answer)
			return
		}
		writeAPI(w, status, map[string]any{
			"ok": true, "channel": channelID(m.Channel), "ts": m.TS, "message": m.stored(false),
		})
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
	s.treat(w, r, m, code, func(status int, code string, _ Message) {
		if code == "" {
			code = "ok"
		} else if status == http.StatusOK {
			if status = webhookStatus[code]; status == 0 {
				status = http.StatusBadRequest
			}
		}
		writeText(w, status, code)
	})
}

// authTest handles auth.test of the Web API. It is not a post: of all behaviours only the revoked token
// applies.
func (s *Slack) authTest(w http.ResponseWriter, r *http.Request) {
	_, code := authorised(r)
	s.mu.Lock()
	if s.mode.Revoked {
		code = "token_revoked"
	}
	s.mu.Unlock()
	if code != "" {
		writeAPI(w, http.StatusOK, map[string]any{"ok": false, "error": code})
		return
	}
	s.mu.Lock()
	scopes := s.scopes
	s.mu.Unlock()
	if scopes != "" {
		w.Header().Set("X-OAuth-Scopes", scopes)
	}
	writeAPI(w, http.StatusOK, map[string]any{
		"ok": true, "url": s.url + "/", "team": "Fake Workspace", "user": "notifier",
		"team_id": "T000", "user_id": "U000", "bot_id": botID,
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

const plainText = "text/plain; charset=utf-8"

func writeText(w http.ResponseWriter, status int, body string) { writeAs(w, status, plainText, body) }

func writeAs(w http.ResponseWriter, status int, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}
