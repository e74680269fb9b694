package main

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"notifier/test/kit"
)

// TestFrozenWorkerKeepsLetters freezes a worker for a moment, in which undecodable events reach it and NATS
// goes away. It wakes with events that it can neither store as letters nor hand back.
func TestFrozenWorkerKeepsLetters(t *testing.T) {
	t.Parallel()
	const events = 20 // few enough for the worker's outstanding pull request
	server, _, env := services(t, nil)
	p := startReady(t, env)
	js := kit.JetStream(t, env["NATS_URL"])
	kit.Check(t, p.command.Process.Signal(syscall.SIGSTOP))
	payload := []byte("{" + strings.Repeat("x", 60_000))
	for i := range events {
		_, err := js.Publish(t.Context(), "notify.errors", payload)
		if err != nil {
			t.Fatalf("publish %d: %v", i, err)
		}
	}
	// the signal takes a moment, so the worker may have settled the first of them
	kit.Eventually(t, "they are on their way to the worker", func() bool {
		consumer, err := js.Consumer(t.Context(), "NOTIFY", "notifier")
		return err == nil && consumer.CachedInfo().NumPending == 0 && consumer.CachedInfo().NumAckPending > events/2
	})
	server.Stop()
	kit.Check(t, p.command.Process.Signal(syscall.SIGCONT))
	kit.Eventually(t, "the worker waits for NATS", func() bool {
		status, body := get(t, adminURL(t, &p.out)+"/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "nats")
	})
	kit.Check(t, server.Start())
	kit.Eventually(t, "all are settled", func() bool { return len(settledIDs(t, p)) == events })
	if without := p.out.lines(`"letter":false`); len(without) > 0 {
		t.Errorf("%d events ended without a letter, such as %s", len(without), without[0])
	}
	stream, err := kit.JetStream(t, env["NATS_URL"]).Stream(t.Context(), "NOTIFY_DEAD")
	kit.Check(t, err)
	if stored := stream.CachedInfo().State.Msgs; stored != events {
		t.Errorf("%d letters are stored, expected %d", stored, events)
	}
}

// settledIDs counts the lines of each event in the log of a process.
func settledIDs(t *testing.T, p *process) map[string]int {
	t.Helper()
	lines := map[string]int{}
	for _, line := range p.out.lines(`"outcome":`) {
		lines[fmt.Sprint(logLine(t, line)["event_id"])]++
	}
	return lines
}
