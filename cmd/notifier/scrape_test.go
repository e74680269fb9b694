package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"notifier/test/kit"
	"notifier/test/redistest"
)

// TestScrapesCostRedisNothing: 400 scrapes by 20 clients cost Redis less than a command each, while 100
// categories are busy. What the worker does by itself is in that, too.
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
			last = `"category":"category-99"`
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
