package main

import (
	"testing"

	"github.com/nats-io/nats.go"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// publishEach publishes events in order: a category, its number of events, the next category, and so forth.
func publishEach(t *testing.T, server *devstack.NATS, events ...any) {
	t.Helper()
	connection, err := nats.Connect(server.URL())
	kit.Check(t, err)
	defer connection.Close()
	for i := 0; i < len(events); i += 2 {
		for range events[i+1].(int) {
			kit.Check(t, connection.Publish("notify."+events[i].(string), []byte("x")))
		}
	}
	kit.Check(t, connection.FlushTimeout(kit.Patience))
}
