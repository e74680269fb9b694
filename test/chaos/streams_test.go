package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"notifier/internal/outcome"
	"notifier/test/kit"
)

// secondStream is the second deployment's stream, which its workers create.
const secondStream = "MORE"

// Two deployments in one namespace of Redis read different streams, which is the way to scale beyond a
// single stream. Together they fill the limits exactly, and send each event once.
func TestTwoStreamsShareOneLimit(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	const global, category = 20, 8
	d := newDeployment(t, 20*time.Second, limits{global: fmt.Sprintf("%d/1h", global), category: fmt.Sprintf("%d/1h", category)})
	for i := range 4 {
		k := d.addWorker(plain, false)
		if i%2 == 1 {
			k.settings["NATS_STREAM"], k.settings["NATS_SUBJECT"] = secondStream, "more.>"
		}
		_, err := k.start()
		kit.Check(t, err)
	}
	for _, k := range d.workers {
		kit.EventuallyNil(t, func() error { return k.now().Ready() })
	}

	// An ID is unique within its category across both streams. An ID derived from the stream sequence
	// belongs to one stream, so the first messages of both streams are different events.
	d.put("notify.own", "", "notify without an id")
	d.put("more.own", "", "more without an id")
	d.settleInBoth(2)
	d.put("notify.alpha", "same", "same alpha")
	d.put("more.alpha", "same", "same alpha")
	// the ID is in the payload, because NATS takes a message ID once per stream, whatever the subject
	d.put("more.beta", "", `{"id":"same","text":"same beta"}`)
	d.settleInBoth(5)

	// Exceed both limits in both streams.
	published := 5
	for n := range 12 {
		for _, subject := range []string{"notify.alpha", "notify.gamma", "notify.delta", "more.alpha", "more.gamma", "more.delta"} {
			id := fmt.Sprintf("%s-%d", subject, n)
			d.put(subject, id, id)
			published++
		}
	}
	outcomes, sentIn, sentOf := map[string]int{}, map[string]int{}, map[string]int{}
	for _, l := range d.settleInBoth(published) {
		outcomes[l.Outcome]++
		if l.Reason == outcome.Duplicate {
			outcomes[l.Reason]++
		}
		if l.Outcome == outcome.Sent {
			sentIn[l.process.worker.settings["NATS_STREAM"]]++
			sentOf[l.Category]++
		}
	}
	if diff := cmp.Diff(map[string]int{"sent": global, "dropped": published - global, "duplicate": 1}, outcomes); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if sentIn[streamName] == 0 || sentIn[secondStream] == 0 {
		t.Errorf("sent by stream: %v, expected some of each", sentIn)
	}
	for name, n := range sentOf {
		if n > category {
			t.Errorf("%d events of %s were sent, expected %d at most", n, name, category)
		}
	}
	texts := map[string]int{}
	for _, message := range d.slack.Messages() {
		texts[message.Text]++
	}
	if len(texts) != global || d.slack.Accepted() != global {
		t.Errorf("%d messages in Slack, %d of them different; expected %d", d.slack.Accepted(), len(texts), global)
	}
	for _, text := range []string{"notify without an id", "more without an id", "same alpha", "same beta"} {
		if texts[text] != 1 {
			t.Errorf("%q is %d times in Slack, expected once", text, texts[text])
		}
	}
	d.shutDown()
}

// put publishes an event, with a message ID unless id is empty.
func (d *deployment) put(subject, id, text string) {
	d.Helper()
	message := &nats.Msg{Subject: subject, Data: []byte(text), Header: nats.Header{}}
	if id != "" {
		message.Header.Set(nats.MsgIdHdr, id)
	}
	_, err := d.js.PublishMsg(d.Context(), message)
	kit.Check(d.T, err)
}

// settleInBoth waits until all published events have a line, and returns the lines. If a slow machine
// causes a redelivery, a resulting duplicate is left out, but any other outcome is an additional line.
func (d *deployment) settleInBoth(published int) (lines []*line) {
	d.Helper()
	kit.Eventually(d.T, fmt.Sprintf("%d events are settled", published), func() bool {
		lines = nil
		for _, p := range d.processes() {
			for _, l := range p.outcomes() {
				if !l.Redelivered || l.Reason != outcome.Duplicate {
					lines = append(lines, l)
				}
			}
		}
		return len(lines) >= published
	})
	return lines
}
