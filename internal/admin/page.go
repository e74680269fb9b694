package admin

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"strings"
	"unicode"

	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/internal/status"
	"notifier/internal/term"
)

// The page is one document with its style and script inside, so a browser never combines files of two
// versions, even if a load balancer sends each request to another worker. The script fetches the document
// again and applies the differences.
var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
		"style":   func() template.CSS { return template.CSS(pageCSS) },
		"script":  func() template.JS { return template.JS(pageJS) },
		"version": func() string { return hash(pageHTML + pageCSS + pageJS) },
		"short":   func(text string) string { return term.Cut(text, maxText) },
		"percent": func(share float64) float64 { return 100 * min(max(share, 0), 1) },
	}).Parse(pageHTML))

	pagePolicy = strings.Join([]string{
		"default-src 'none'",
		"script-src 'sha256-" + hash(pageJS) + "'",
		"style-src 'sha256-" + hash(pageCSS) + "'",
		"connect-src 'self'",
		"img-src data:",
		"form-action 'self'",
		"base-uri 'none'",
		"frame-ancestors 'none'",
	}, "; ")
)

// maxText bounds a text in the page, in bytes.
const maxText = 500

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// view is the data of the template.
type view struct {
	State    status.State
	Sections []status.Section
	Query    EventsQuery
	Outcomes []string
	Events   status.Section
}

func (h *handlers) page(w http.ResponseWriter, r *http.Request) {
	now, found := h.readState(w, r)
	if !found {
		return
	}
	v := view{State: now, Sections: now.Sections(), Outcomes: outcome.Outcomes()}
	var events Events
	var err error
	if v.Query, err = parseEvents(r.URL.RawQuery); err == nil {
		events, err = h.readEvents(r.Context(), v.Query)
	}
	v.Events = eventsSection(events, err)
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", pagePolicy)
	_, _ = w.Write([]byte(visible(page.String()))) // an error means that the client has disconnected
}

func eventsSection(events Events, err error) status.Section {
	section := status.Section{ID: "events", Title: "Recent events, newest last", Note: events.Note}
	columns := recent.Columns[:len(recent.Columns)-1] // SOURCE is the last, and rarely known
	for _, name := range columns {
		section.Columns = append(section.Columns, status.Column{Name: name})
	}
	if err != nil {
		section.Note = "Unknown: " + err.Error()
	}
	levels := map[string]status.Level{outcome.Dropped: status.Warn, outcome.Dead: status.Fail}
	for _, record := range events.Events {
		row := status.Row{Level: cmp.Or(levels[record.Outcome], status.OK)}
		for _, text := range recent.Row(record)[:len(columns)] {
			row.Cells = append(row.Cells, status.Cell{Text: text})
		}
		section.Rows = append(section.Rows, row)
	}
	return section
}

// visible replaces characters that a reader cannot see or that reorder others.
func visible(page string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, page)
}
