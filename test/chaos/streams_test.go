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

// secondStream is the stream of the second deployment, which its worker creates.
const secondStream = "MORE"

// TestTwoStreamsShareOneLimit runs two deployments, which differ in what they read alone, on one Redis and
// one namespace: this is how one grows beyond a single stream. Together they send exactly as many as the
// limits allow, each event once.
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

	// An id counts within its category, whichever stream an event comes from; one that is made of the place in a
	// stream is of that stream alone, although both are the first message there.
	d.put("notify.own", "", "notify without an id")
	d.put("more.own", "", "more without an id")
	d.settleInBoth(2)
	d.put("notify.alpha", "same", "same alpha")
	d.put("more.alpha", "same", "same alpha")
	// NATS itself takes a message id once in a stream, whatever the subject
	d.put("more.beta", "", `{"id":"same","text":"same beta"}`)
	d.settleInBoth(5)

	// Then more than both limits allow, into both streams.
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

// put publishes an event, with an id if there is one.
func (d *deployment) put(subject, id, text string) {
	d.Helper()
	message := &nats.Msg{Subject: subject, Data: []byte(text), Header: nats.Header{}}
	if id != "" {
		message.Header.Set(nats.MsgIdHdr, id)
	}
	_, err := d.js.PublishMsg(d.Context(), message)
	kit.Check(d.T, err)
}

// settleInBoth waits until so many events have a line, and returns the lines; a machine so slow that an event
// came again has more.
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
