package admin

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
)

// The page is one document, assembled here, so that no browser ever has the markup of one version and the script of
// another: behind a load balancer each request may go to another replica.
var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	stateJS string
	//go:embed page_summary.js
	summaryJS string
	//go:embed page_draw.js
	drawJS string
	//go:embed page_show.js
	showJS string
	//go:embed page_events.js
	eventsJS string
	//go:embed page_poll.js
	pollJS string

	pageJS      = stateJS + summaryJS + drawJS + showJS + eventsJS + pollJS
	page        = strings.NewReplacer("{{style}}", pageCSS, "{{script}}", pageJS, "{{version}}", pageVersion).Replace(pageHTML)
	pageVersion = hex.EncodeToString(sum(pageHTML + pageCSS + pageJS))[:16]

	// pagePolicy allows the document its own script and style, by their hashes, requests to this server, and nothing else.
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

func servePage(w http.ResponseWriter, _ *http.Request) {
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", pagePolicy)
	_, _ = w.Write([]byte(page)) // an error means that the client has disconnected
}
