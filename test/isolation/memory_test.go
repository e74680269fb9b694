package isolation

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/test/kit"
)

// container is the Go memory limit of a worker in a container of 256 MB.
const container = "219MiB"

// mostMemory bounds a worker's peak memory, in MiB.
const mostMemory = 96.0

// TestBacklogsDoNotFillTheMemory publishes a backlog ahead of good events: 600 events of 900 kB, which are
// dead-lettered, or 4,000 events with 60 kB of headers each, which are admitted for a slow channel.
func TestBacklogsDoNotFillTheMemory(t *testing.T) {
	needsFull(t)
	header := nats.Header{"X-Padding": {strings.Repeat("x", 60_000)}}
	for _, test := range []struct {
		name    string
		events  int
		payload []byte
		header  nats.Header
		settled func(d *deployment) int
	}{
		{"3. backlog of 600 events of 900 kB", 600, bytes.Repeat([]byte("x"), 900_000), nil, (*deployment).tooLarge},
		{"4. backlog of 4000 events with 60 kB of headers", 4000, []byte("x"), header, func(d *deployment) int {
			return d.admitted("backlog")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDeployment(t, settings{
				"SLACK_CHANNEL": "C0SLOWEST", "SLACK_ROUTES": "good=C0GOODNEWS", "SLACK_PACE": pace,
				"LIMIT_GLOBAL": unlimited, "LIMIT_CATEGORY": unlimited, "GOMEMLIMIT": container,
			})
			d.slack.SetLimit(slackLimit(t), window)
			d.createStream()
			for i := range test.events {
				d.publishMessage("backlog", fmt.Sprintf("backlog-%d", i), test.payload, test.header)
				if i%16 == 0 {
					d.flush() // keeps the client from buffering the whole backlog
				}
			}
			good := d.publishGood(10)
			begun := time.Now()
			d.startWorkers(1)
			posts := d.waitPosted(kit.Patience, good)
			took := time.Since(begun)
			kit.Eventually(t, "the backlog is decided", func() bool { return test.settled(d) == test.events })
			memory := peakMemory(t, d.workers[0])
			judge(t, test.name, posts.missing == 0 && memory < mostMemory,
				fmt.Sprintf("good ones go through, worker below %.0f MiB", mostMemory),
				"%d of %d good ones posted %s after its start; worker %.0f MiB",
				len(good)-posts.missing, len(good), took.Round(10*time.Millisecond), memory)
		})
	}
}

// tooLarge returns the number of events dead-lettered for their size.
func (d *deployment) tooLarge() (n int) {
	for _, l := range d.settled() {
		if l.Outcome == "dead" && l.Reason == "too_large" {
			n++
		}
	}
	return n
}

// publishGood publishes n events of the category good, after all earlier events.
func (d *deployment) publishGood(n int) (ids []string) {
	d.Helper()
	d.flush()
	for i := range n {
		ids = append(ids, fmt.Sprintf("good-%d", i))
		d.publish("good", ids[i])
	}
	d.flush()
	return ids
}
