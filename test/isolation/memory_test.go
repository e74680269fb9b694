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

// container is the memory limit that the Go runtime takes from a container of 256 MB.
const container = "219MiB"

// mostMemory bounds a worker's peak memory, in MiB.
const mostMemory = 96.0

// TestOversizedEventsDoNotFillTheMemory: 600 events of 900 kB, which are dead-lettered, wait before good
// ones.
func TestOversizedEventsDoNotFillTheMemory(t *testing.T) {
	needsFull(t)
	const n = 600
	d := newDeployment(t, settings{"SLACK_CHANNEL": "C0GOODNEWS", "GOMEMLIMIT": container})
	d.createStream()
	huge := bytes.Repeat([]byte("x"), 900_000)
	for i := range n {
		d.publishMessage("huge", fmt.Sprintf("huge-%d", i), huge, nil)
		if i%16 == 0 {
			d.flush() // or the client's buffer holds them all
		}
	}
	good := d.publishGood(10)
	begun := time.Now()
	d.startWorkers(1)
	posts := d.waitPosted(kit.Patience, good)
	took := time.Since(begun)
	kit.Eventually(t, "the stream is empty", func() bool { return d.pending() == 0 })
	dead := 0
	for _, l := range d.settled() {
		if l.Outcome == "dead" && l.Reason == "too_large" {
			dead++
		}
	}
	memory := peakMemory(t, d.workers[0])
	judge(t, fmt.Sprintf("3. backlog of %d events of 900 kB", n), posts.missing == 0 && dead == n && memory < mostMemory,
		fmt.Sprintf("good ones go through, worker below %.0f MiB", mostMemory),
		"%d of %d good ones posted %s after its start, %d dead; worker %.0f MiB", len(good)-posts.missing, len(good), took.Round(10*time.Millisecond), dead, memory)
}

// TestLargeHeadersDoNotFillTheMemory: 4,000 events with 60 kB of headers each are admitted for a slow
// channel, and wait before good ones for another.
func TestLargeHeadersDoNotFillTheMemory(t *testing.T) {
	needsFull(t)
	const n = 4000
	d := newDeployment(t, settings{
		"SLACK_CHANNEL": "C0SLOWEST", "SLACK_ROUTES": "good=C0GOODNEWS", "SLACK_PACE": pace,
		"LIMIT_GLOBAL": unlimited, "LIMIT_CATEGORY": unlimited, "GOMEMLIMIT": container,
	})
	_, slackLimit := limit(t, 12, window)
	d.slack.SetLimit(slackLimit, window)
	d.createStream()
	header := nats.Header{"X-Padding": {strings.Repeat("x", 60_000)}}
	for i := range n {
		id := fmt.Sprintf("headers-%d", i)
		d.publishMessage("headers", id, []byte(id), header)
		if i%200 == 0 {
			d.flush()
		}
	}
	good := d.publishGood(10)
	begun := time.Now()
	d.startWorkers(1)
	posts := d.waitPosted(kit.Patience, good)
	took := time.Since(begun)
	if !kit.Within(kit.Patience, func() bool { return d.admitted("headers") == n }) {
		t.Errorf("%d of %d events with large headers are admitted after %s, expected all", d.admitted("headers"), n, kit.Patience)
	}
	memory := peakMemory(t, d.workers[0])
	judge(t, fmt.Sprintf("4. backlog of %d events with 60 kB of headers", n), posts.missing == 0 && memory < mostMemory,
		fmt.Sprintf("good ones go through, worker below %.0f MiB", mostMemory),
		"%d of %d good ones posted %s after its start; worker %.0f MiB", len(good)-posts.missing, len(good), took.Round(10*time.Millisecond), memory)
}

// publishGood publishes n events of the category good, which come after all others.
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
