package admin

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// The page is one document that the server draws, and its script only asks for the newest one and shows it.
// So no browser ever has the markup of one version and the script of another: behind a load balancer each
// request may go to another replica.
var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	pageVersion = hex.EncodeToString(sum(pageHTML + pageCSS + pageJS))[:16]
	pageParts   = template.Must(template.New("page").Funcs(template.FuncMap{
		"style":   func() template.CSS { return template.CSS(pageCSS) },
		"script":  func() template.JS { return template.JS(pageJS) },
		"version": func() string { return pageVersion },
	}).Parse(pageHTML))

	// pagePolicy allows the document its own script and style, by their hashes, requests to this server, and
	// nothing else.
	pagePolicy = "default-src 'none'; script-src " + source(pageJS) + "; style-src " + source(pageCSS) +
		"; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

func sum(text string) []byte {
	hash := sha256.Sum256([]byte(text))
	return hash[:]
}

func source(text string) string {
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum(text)) + "'"
}

// mostOpen bounds how many sections an address opens, of which there are fewer.
const mostOpen = 20

var errNoEvents = errors.New("this worker does not serve recent events")

// draw executes a template of the page. What nobody sees in a foreign text, or what changes how the rest is
// shown, becomes U+FFFD.
func draw(name string, data any) (string, error) {
	var page bytes.Buffer
	err := pageParts.ExecuteTemplate(&page, name, data)
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, page.String()), err
}

// drawing is the page of one answer. Each part of it is drawn once, when somebody looks at it: there are many
// rows, and most people open few sections.
type drawing struct {
	page     func() (string, error)
	sections map[string]func() (string, error) // by id
}

func newDrawing(page any, sections map[string]any) *drawing {
	once := func(name string, data any) func() (string, error) {
		return sync.OnceValues(func() (string, error) { return draw(name, data) })
	}
	d := &drawing{page: once("page", page), sections: map[string]func() (string, error){}}
	for id, section := range sections {
		d.sections[id] = once("section", section)
	}
	return d
}

// withSections is the page with those sections that are open. No text can be taken for the place of one,
// because "<" is escaped.
func (d *drawing) withSections(open []string, events func() (string, error)) (string, error) {
	page, err := d.page()
	for _, id := range open {
		section := d.sections[id]
		if id == "event-section" {
			section = events
		}
		if section == nil || err != nil {
			continue
		}
		var body string
		body, err = section()
		page = strings.Replace(page, `<slot name="`+id+`"></slot>`, body, 1)
	}
	return page, err
}

// servePage answers with the page, and with 200 also where the status is not known, which the page says.
func (s *statusHandler) servePage(events eventsFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, _, err := s.answer.GetFor(r.Context(), s.ctx)
		if answer.drawing == nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		query := r.URL.Query()
		open := strings.Split(strings.Join(query["open"], ","), ",")
		page, err := answer.drawing().withSections(open[:min(len(open), mostOpen)], func() (string, error) {
			return s.recentEvents(r.Context(), query, events)
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", pagePolicy)
		_, _ = w.Write([]byte(page)) // an error means that the client has disconnected
	}
}

// recentEvents draws the section of recent events. What the filter of the address has that does not exist
// selects everything.
func (s *statusHandler) recentEvents(
	ctx context.Context,
	query url.Values,
	events eventsFunc,
) (string, error) {
	shown := struct {
		EventsQuery
		Outcomes []string
		Found    any
		Error    error
	}{EventsQuery: EventsQuery{N: defaultEvents}, Outcomes: eventOutcomes}
	shown.Category = strings.TrimSpace(query.Get("category"))
	if slices.Contains(eventOutcomes, query.Get("outcome")) {
		shown.Outcome = query.Get("outcome")
	}
	if shown.Error = errNoEvents; events != nil {
		shown.Found, shown.Error = events(ctx, s.ctx, shown.EventsQuery)
	}
	return draw("events", shown)
}
