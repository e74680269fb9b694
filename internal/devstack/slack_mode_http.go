package devstack

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"notifier/internal/ratelimit"
)

// maxModeBody bounds a Mode as JSON, in bytes.
const maxModeBody = 256 << 10

// modeText is a Mode as JSON. An empty text turns its part off.
type modeText struct {
	ChannelLimit   string   `json:"channel_limit"`
	WorkspaceLimit string   `json:"workspace_limit"`
	RetryAfter     string   `json:"retry_after"`
	Fail           []string `json:"fail"` // TEXT=KIND
	Revoked        bool     `json:"revoked"`
}

// parse returns the Mode, or an error with every part that is wrong.
func (t modeText) parse() (Mode, error) {
	m := Mode{Revoked: t.Revoked}
	var errs []error
	note := func(name string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	limit := func(name, text string) (limit ratelimit.Limit) {
		if text != "" {
			var err error
			limit, err = ParseModeLimit(text)
			note(name, err)
		}
		return limit
	}
	m.ChannelLimit = limit("channel_limit", t.ChannelLimit)
	m.WorkspaceLimit = limit("workspace_limit", t.WorkspaceLimit)
	if t.RetryAfter != "" {
		var err error
		m.RetryAfter, err = ParseModePause(t.RetryAfter)
		note("retry_after", err)
	}
	if len(t.Fail) > maxModeFailures {
		note("fail", fmt.Errorf("%d texts, expected at most %d", len(t.Fail), maxModeFailures))
		t.Fail = nil
	}
	for _, text := range t.Fail {
		f, err := ParseFailure(text)
		note("fail", err)
		m.Fail = append(m.Fail, f)
	}
	return m, errors.Join(errs...)
}

// text is the Mode as modeText.parse reads it.
func (m Mode) text() modeText {
	t := modeText{Fail: []string{}, Revoked: m.Revoked}
	if m.ChannelLimit != nil {
		t.ChannelLimit = m.ChannelLimit.String()
	}
	if m.WorkspaceLimit != nil {
		t.WorkspaceLimit = m.WorkspaceLimit.String()
	}
	if m.RetryAfter > 0 {
		t.RetryAfter = fmt.Sprintf("%ds", int(m.RetryAfter.Seconds()))
	}
	for _, f := range m.Fail {
		t.Fail = append(t.Fail, f.Text+"="+f.Kind)
	}
	return t
}

func (s *Slack) modeRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /fake/mode", s.showMode)
	mux.HandleFunc("POST /fake/mode", s.changeMode)
}

// changeMode reads a whole Mode: what it does not name is off.
func (s *Slack) changeMode(w http.ResponseWriter, r *http.Request) {
	text, err := readMode(r.Body)
	if err != nil {
		http.Error(w, `expected a JSON object such as {"channel_limit":"12/10s"}: `+err.Error(), http.StatusBadRequest)
		return
	}
	m, err := text.parse()
	if err == nil {
		err = s.SetMode(m)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.showMode(w, r)
}

func readMode(body io.Reader) (text modeText, err error) {
	data, err := io.ReadAll(io.LimitReader(body, maxModeBody+1))
	if err != nil {
		return text, err
	}
	if len(data) > maxModeBody {
		return text, fmt.Errorf("too large, expected at most %d bytes", maxModeBody)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&text); err != nil {
		return text, err
	}
	if _, end := decoder.Token(); end != io.EOF {
		return text, errors.New("something follows the object")
	}
	return text, nil
}

// showMode responds with the Mode, how many requests it has refused, and in which channels.
func (s *Slack) showMode(w http.ResponseWriter, _ *http.Request) {
	type shown struct {
		ID   string `json:"id"`
		Name string `json:"name"`
		Refusals
	}
	channels := []shown{}
	s.mu.Lock()
	mode, refused := s.mode.text(), s.refused
	for id, c := range s.channels {
		if c.refused != (Refusals{}) {
			channels = append(channels, shown{id, c.name, c.refused})
		}
	}
	s.mu.Unlock()
	slices.SortFunc(channels, func(a, b shown) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	w.Header().Set("Cache-Control", "no-store")
	writeAPI(w, http.StatusOK, map[string]any{"mode": mode, "refused": refused, "channels": channels})
}
