package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

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
	w := newWorld(t, 20*time.Second, limits{global: fmt.Sprintf("%d/1h", global), category: fmt.Sprintf("%d/1h", category)})
	for i := range 4 {
		k := w.addWorker(plain, false)
		if i%2 == 1 {
			k.settings["NATS_STREAM"], k.settings["NATS_SUBJECT"] = second, "more.>"
		}
		_, err := k.start()
		kit.Check(t, err)
	}
	for _, k := range w.workers {
		kit.Eventually(t, k.name+" is ready", func() bool { return k.now().ready() == nil })
	}

	// An id counts within its category, whichever stream an event comes from; one that is made of the place in a stream is of that
	// stream alone, although both are the first message there.
	for _, root := range []string{"notify", "more"} {
		w.put(root+".own", "", root+" without an id")
	}
	w.bothAtRest(2)
	w.put("notify.alpha", "same", "same alpha")
	w.put("more.alpha", "same", "same alpha")
	w.put("more.beta", "", `{"id":"same","text":"same beta"}`) // NATS itself takes a message id once in a stream, whatever the subject
	w.bothAtRest(5)

	// Then more than both limits allow, into both streams.
	published := 5
	for n := range 12 {
		for _, root := range []string{"notify", "more"} {
			for _, category := range []string{"alpha", "gamma", "delta"} {
				id := fmt.Sprintf("%s-%s-%d", root, category, n)
				w.put(root+"."+category, id, id)
				published++
			}
		}
	}
	w.bothAtRest(published)
	w.statusOfTwo(published, global)
	w.shutDown()
	w.judgeTwo(published, global, category)
}

// put publishes an event, with an id if there is one.
func (w *world) put(subject, id, text string) {
	w.Helper()
	message := &nats.Msg{Subject: subject, Data: []byte(text), Header: nats.Header{}}
	if id != "" {
		message.Header.Set(nats.MsgIdHdr, id)
	}
	_, err := w.js.PublishMsg(w.Context(), message)
	kit.Check(w.T, err)
}

// settledLines are the lines about events of all workers, without those of a machine so slow that an event came again.
func (w *world) settledLines() (lines []*line) {
	w.Helper()
	for name, l := range w.lives() {
		journal := readLog(l)
		if len(journal.broken) > 0 {
			w.Errorf("%s: %q", name, journal.broken)
		}
		for _, line := range journal.lines {
			again := line.Redelivered && line.Reason == "duplicate"
			if strings.HasPrefix(line.Message, "notification ") && !again {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// bothAtRest waits until both streams are empty, and expects so many lines.
func (w *world) bothAtRest(published int) {
	w.Helper()
	kit.EventuallyNil(w.T, func() error {
		for _, name := range []string{streamName, second} {
			stream, err := w.js.Stream(w.Context(), name)
			if err != nil {
				return err
			}
			if left := stream.CachedInfo().State.Msgs; left > 0 {
				return fmt.Errorf("%d events in %s", left, name)
			}
		}
		return nil
	})
	if got := len(w.settledLines()); got != published {
		w.Errorf("%d lines about %d events, expected one for each", got, published)
	}
}

// judgeTwo holds the lines, and the messages in Slack, against the limits.
func (w *world) judgeTwo(published, global, category int) {
	w.Helper()
	outcomes, sentIn, perCategory := map[string]int{}, map[string]int{}, map[string]int{}
	for _, l := range w.settledLines() {
		outcomes[strings.TrimSpace(l.Outcome+" "+l.Reason)]++
		if l.Outcome == "sent" {
			sentIn[l.life.worker.settings["NATS_STREAM"]]++
			perCategory[l.Category]++
		}
	}
	w.Logf("%d events in two streams: %v; sent by stream %v, by category %v", published, outcomes, sentIn, perCategory)
	if outcomes["sent"] != global || outcomes["dropped duplicate"] != 1 || outcomes["sent"]+outcomes["dropped global"]+outcomes["dropped category"]+1 != published {
		w.Errorf("%v, expected %d sent, one duplicate, and all others refused by a limit", outcomes, global)
	}
	if sentIn[streamName] == 0 || sentIn[second] == 0 {
		w.Errorf("sent by stream: %v, expected some of each", sentIn)
	}
	for name, n := range perCategory {
		if n > category {
			w.Errorf("%d events of %s were sent, expected %d at most", n, name, category)
		}
	}
	texts := map[string]int{}
	for _, message := range w.slack.Messages() {
		texts[message.Text]++
	}
	for text, n := range texts {
		if n > 1 {
			w.Errorf("%d times in Slack: %s", n, text)
		}
	}
	if len(texts) != global || w.slack.Accepted() != global {
		w.Errorf("%d messages in Slack, %d of them different; expected %d", w.slack.Accepted(), len(texts), global)
	}
	for _, text := range []string{"notify without an id", "more without an id", "same alpha", "same beta"} {
		if texts[text] != 1 {
			w.Errorf("%q is %d times in Slack, expected once", text, texts[text])
		}
	}
}

// statusOfTwo asks as an operator of either deployment does. The status is about both; what became of events is recorded beside the
// stream that they came from.
func (w *world) statusOfTwo(published, global int) {
	w.Helper()
	var status struct {
		Global struct {
			Tiers   []struct{ Used int }
			Sent    int `json:"sent_last_hour"`
			Dropped int `json:"dropped_last_hour"`
		}
		Ready    int `json:"ready_replicas"`
		Streams  []struct{ Stream string }
		Settings struct{ Warnings []string }
	}
	var names []string
	counted := kit.Within(kit.Patience, func() bool {
		kit.Check(w.T, json.Unmarshal([]byte(w.command(w.workers[0], "status", "-json")), &status))
		names = nil
		for _, stream := range status.Streams {
			names = append(names, stream.Stream)
		}
		return status.Global.Sent == global && status.Global.Sent+status.Global.Dropped == published && len(names) == 4
	})
	wanted := []string{second, second + "_DEAD", streamName, streamName + "_DEAD"}
	if !counted || status.Global.Tiers[0].Used != global || status.Global.Sent+status.Global.Dropped != published || status.Ready != 4 || !slices.Equal(names, wanted) {
		w.Errorf("%+v, expected %d used and sent, %d events, 4 replicas and the streams %q", status, global, published, wanted)
	}
	if len(status.Settings.Warnings) > 0 {
		w.Errorf("%q, expected no warning: both post to the same channel and read nothing in common", status.Settings.Warnings)
	}
	recorded := map[string]int{}
	kit.Within(kit.Patience, func() bool {
		recorded[streamName] = strings.Count(w.command(w.workers[0], "events", "-n", "1000", "-json"), `"event_id"`)
		recorded[second] = strings.Count(w.command(w.workers[1], "events", "-n", "1000", "-json"), `"event_id"`)
		return recorded[streamName]+recorded[second] == published
	})
	if recorded[streamName] != published/2 || recorded[second] != published-published/2 {
		w.Errorf("%v of %d events are recorded, expected each with its stream", recorded, published)
	}
}

// command runs a command of the program with the settings of a worker, and returns its output.
func (w *world) command(k *worker, arguments ...string) string {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), kit.Patience)
	defer cancel()
	command := exec.CommandContext(ctx, k.program, arguments...)
	for _, name := range slices.Sorted(maps.Keys(k.settings)) {
		command.Env = append(command.Env, name+"="+k.settings[name])
	}
	out, err := command.CombinedOutput()
	if err != nil {
		w.Fatalf("%s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
	return string(out)
}
