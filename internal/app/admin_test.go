package app

import (
	"io"
	"net/http"
	"testing"

	"go.uber.org/zap/zaptest/observer"

	"notifier/test/kit"
)

// scraped returns the metrics of the worker with this log.
func scraped(t *testing.T, logs *observer.ObservedLogs) string {
	t.Helper()
	_, body := get(t, logs, "/metrics")
	return body
}

// get sends a request to the admin server of the worker with this log.
func get(t *testing.T, logs *observer.ObservedLogs, path string) (status int, body string) {
	t.Helper()
	addr := logs.FilterMessage("admin server listens").All()[0].ContextMap()["addr"].(string)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + addr + path)
	kit.Check(t, err)
	content, err := io.ReadAll(response.Body)
	kit.Check(t, err)
	kit.Check(t, response.Body.Close())
	return response.StatusCode, string(content)
}
