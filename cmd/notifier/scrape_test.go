package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/devstack"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// TestScrapesCostRedisNothing: 400 scrapes by 20 clients cost Redis less than a command each, while 100
// categories are busy. Commands of the worker itself count too.
func TestScrapesCostRedisNothing(t *testing.T) {
	t.Parallel()
	store := redistest.StartProcess(t)
	p, server, _ := worker(t, map[string]string{"REDIS_URL": store.URL(), "LIMIT_GLOBAL": "1000/1h", "SLACK_PACE": "off"})
	var events []any
	for i := range 100 {
		events = append(events, fmt.Sprintf("category-%02d", i), 1)
	}
	admin := readyURL(t, &p.out)
	publishEach(t, server, events...)
	kit.Eventually(t, "all are sent", func() bool { return len(p.out.lines(`"outcome":"sent"`)) == 100 })
	for path, fresh := range map[string]time.Duration{"/metrics": 5 * time.Second, "/api/status": 2 * time.Second} {
		last := `category="category-99",scope="category"`
		if path == "/api/status" {
			last = `"scope":"category/category-99"`
		}
		kit.Eventually(t, path+" has all of them", func() bool { _, body := get(t, admin+path); return strings.Contains(body, last) })
		before, begun := store.Commands(t), time.Now()
		var clients sync.WaitGroup
		for range 20 {
			clients.Go(func() {
				for range 20 {
					if code, body := get(t, admin+path); code != http.StatusOK || !strings.Contains(body, last) {
						t.Errorf("%s: %d with %d bytes", path, code, len(body))
					}
				}
			})
		}
		clients.Wait()
		took, commands := time.Since(begun), store.Commands(t)-before
		t.Logf("400 scrapes of %s took %s and cost %d commands", path, took, commands)
		// On a busy machine they last for several snapshots. The worker's own commands are counted too: the flush
		// of counts each second that has begun, and two looks at whether the store is still the same.
		if allowed := 400*int(1+took/fresh) + 50*int(1+took.Seconds()); commands >= allowed {
			t.Errorf("400 scrapes of %s took %s and cost %d commands, expected less than %d", path, took, commands, allowed)
		}
	}
}

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
