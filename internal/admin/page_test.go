package admin_test

import (
	"net/http"
	"strings"
	"testing"

	"notifier/internal/outcome"
)

// The page explains each way in which an event can end.
func TestThePageHasWordsForEachReason(t *testing.T) {
	keys := []string{outcome.Sent + " "}
	for _, reason := range append(outcome.LimitReasons(), outcome.Muted, outcome.Duplicate, outcome.Expired, outcome.Reply) {
		keys = append(keys, outcome.Dropped+" "+reason)
	}
	for _, reason := range outcome.DeadReasons() {
		keys = append(keys, outcome.Dead+" "+reason)
	}
	server, client := start(t, probesOf(one))
	_, body := ask(t, client, http.MethodGet, "http://"+server.Addr()+"/")
	for _, key := range keys {
		if strings.Count(body, `"`+key+`": "`) != 1 {
			t.Errorf("the page has no words for %q", key)
		}
	}
}
