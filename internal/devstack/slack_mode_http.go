package devstack

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"notifier/internal/ratelimit"
)

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
	var errs [4]error
	if t.ChannelLimit != "" {
		m.ChannelLimit, errs[0] = named("channel_limit", ratelimit.ParseLimit, t.ChannelLimit)
	}
	if t.WorkspaceLimit != "" {
		m.WorkspaceLimit, errs[1] = named("workspace_limit", ratelimit.ParseLimit, t.WorkspaceLimit)
	}
	if t.RetryAfter != "" {
		m.RetryAfter, errs[2] = named("retry_after", time.ParseDuration, t.RetryAfter)
	}
	for _, text := range t.Fail {
		at := max(strings.LastIndex(text, "="), 0) // the text may have one, too
		m.Fail = append(m.Fail, Failure{text[:at], strings.TrimPrefix(text[at:], "=")})
	}
	errs[3] = m.Check()
	return m, errors.Join(errs[:]...)
}

// named parses a field and prefixes errors with its name.
func named[T any](name string, parse func(string) (T, error), text string) (T, error) {
	value, err := parse(text)
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return value, err
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

// changeMode replaces the whole Mode: fields that the request leaves out are reset.
func (s *Slack) changeMode(w http.ResponseWriter, r *http.Request) {
	var text modeText
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&text); err != nil {
		http.Error(
			w,
			`expected a JSON object such as {"channel_limit":"12/10s"}: `+err.Error(),
			http.StatusBadRequest,
		)
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
	slices.SortFunc(
		channels,
		func(a, b shown) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) },
	)
	w.Header().Set("Cache-Control", "no-store")
	writeAPI(w, http.StatusOK, map[string]any{"mode": mode, "refused": refused, "channels": channels})
}
