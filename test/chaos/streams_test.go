package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/outcome"
	"notifier/test/kit"
)

// second is the stream of the second deployment, which its worker creates.
const second = "MORE"

// TestTwoStreamsShareOneLimit runs two deployments, which differ in what they read alone, on one Redis and one namespace: this is how
// somebody outgrows one stream. Together they send exactly as many as the limits allow, each event once.
func TestTwoStreamsShareOneLimit(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	const global, category = 20, 8
	d := newDeployment(t, 20*time.Second, limits{global: fmt.Sprintf("%d/1h", global), category: fmt.Sprintf("%d/1h", category)})
	for i := range 4 {
		k := d.addWorker(plain, false)
		if i%2 == 1 {
			k.settings["NATS_STREAM"], k.settings["NATS_SUBJECT"] = second, "more.>"
		}
		_, err := k.start()
		kit.Check(t, err)
	}
	for _, k := range d.workers {
		kit.Eventually(t, k.name+" is ready", func() bool { return k.now().Ready() == nil })
	}

	// An id counts within its category, whichever stream an event comes from; one that is made of the place in a stream is of that
	// stream alone, although both are the first message there.
	for _, root := range []string{"notify", "more"} {
		d.put(root+".own", "", root+" without an id")
	}
	d.bothAtRest(2)
	d.put("notify.alpha", "same", "same alpha")
	d.put("more.alpha", "same", "same alpha")
	d.put("more.beta", "", `{"id":"same","text":"same beta"}`) // NATS itself takes a message id once in a stream, whatever the subject
	d.bothAtRest(5)

	// Then more than both limits allow, into both streams.
	published := 5
	for n := range 12 {
		for _, root := range []string{"notify", "more"} {
			for _, category := range []string{"alpha", "gamma", "delta"} {
				id := fmt.Sprintf("%s-%s-%d", root, category, n)
				d.put(root+"."+category, id, id)
				published++
			}
		}
	}
	d.bothAtRest(published)
	d.shutDown()
	d.judgeTwo(published, global, category)
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

// settledLines are the lines about events of all workers, without those of a machine so slow that an event came again.
func (d *deployment) settledLines() (lines []*line) {
	for _, p := range d.processes() {
		lines = append(lines, p.outcomes()...)
	}
	return slices.DeleteFunc(lines, func(l *line) bool { return l.Redelivered && l.Reason == outcome.Duplicate })
}

// bothAtRest waits until both streams are empty, and expects so many lines.
func (d *deployment) bothAtRest(published int) {
	d.Helper()
	kit.EventuallyNil(d.T, func() error {
		for _, name := range []string{streamName, second} {
			stream, err := d.js.Stream(d.Context(), name)
			if err != nil {
				return err
			}
			if left := stream.CachedInfo().State.Msgs; left > 0 {
				return fmt.Errorf("%d events in %s", left, name)
			}
		}
		return nil
	})
	if got := len(d.settledLines()); got != published {
		d.Errorf("%d lines about %d events, expected one for each", got, published)
	}
}

// judgeTwo holds the lines, and the messages in Slack, against the limits.
func (d *deployment) judgeTwo(published, global, category int) {
	d.Helper()
	outcomes, sentIn, perCategory := map[string]int{}, map[string]int{}, map[string]int{}
	for _, l := range d.settledLines() {
		outcomes[strings.TrimSpace(l.Outcome+" "+l.Reason)]++
		if l.Outcome == "sent" {
			sentIn[l.process.worker.settings["NATS_STREAM"]]++
			perCategory[l.Category]++
		}
	}
	d.Logf("%d events in two streams: %v; sent by stream %v, by category %v", published, outcomes, sentIn, perCategory)
	if outcomes["sent"] != global || outcomes["dropped duplicate"] != 1 || outcomes["sent"]+outcomes["dropped global"]+outcomes["dropped category"]+1 != published {
		d.Errorf("%v, expected %d sent, one duplicate, and all others refused by a limit", outcomes, global)
	}
	if sentIn[streamName] == 0 || sentIn[second] == 0 {
		d.Errorf("sent by stream: %v, expected some of each", sentIn)
	}
	for name, n := range perCategory {
		if n > category {
			d.Errorf("%d events of %s were sent, expected %d at most", n, name, category)
		}
	}
	texts := map[string]int{}
	for _, message := range d.slack.Messages() {
		texts[message.Text]++
	}
	for text, n := range texts {
		if n > 1 {
			d.Errorf("%d times in Slack: %s", n, text)
		}
	}
	if len(texts) != global || d.slack.Accepted() != global {
		d.Errorf("%d messages in Slack, %d of them different; expected %d", d.slack.Accepted(), len(texts), global)
	}
	for _, text := range []string{"notify without an id", "more without an id", "same alpha", "same beta"} {
		if texts[text] != 1 {
			d.Errorf("%q is %d times in Slack, expected once", text, texts[text])
		}
	}
}
