package app

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/settings"
	"notifier/test/kit"
)

// startWorker runs a worker until stop is called, and gives its log.
func startWorker(t *testing.T, s settings.Settings) (logs *observer.ObservedLogs, stop func()) {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, s, zap.New(core), nil) }()
	kit.Eventually(t, "the worker has started", func() bool {
		return logs.FilterMessage("admin server listens").Len() > 0
	})
	return logs, func() { cancel(); kit.Check(t, <-ended) }
}

// runWorker runs a worker until the test ends, and gives its log.
func runWorker(t *testing.T, s settings.Settings) *observer.ObservedLogs {
	t.Helper()
	logs, stop := startWorker(t, s)
	t.Cleanup(stop)
	return logs
}

// A worker runs without recording if it would read records as events, and logs the reason.
func TestNoOutcomes(t *testing.T) {
	t.Parallel()
	logs := runWorker(t, servers(t, func(env map[string]string) { env["NATS_SUBJECT"] = "notify-events.>" }))
	if n := logs.FilterMessage("outcomes are not recorded").Len(); n != 1 {
		t.Errorf("%d lines, expected one", n)
	}
	status, body := get(t, logs, "/api/events")
	if want := "NATS_SUBJECT notify-events.> matches the subjects of outcomes"; status != http.StatusServiceUnavailable || !strings.Contains(body, want) {
		t.Errorf("%d %s, expected %q", status, body, want)
	}
}
