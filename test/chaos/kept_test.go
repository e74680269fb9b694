package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/test/kit"
)

// heard lists the recorded subjects: acknowledgements as workers send them, acknowledgements as the consumer's
// leader samples them (createConsumer sets the rate to 100%), and advisories.
var heard = []string{
	"$JS.ACK." + streamName + ".>",
	"$JS.EVENT.METRIC.CONSUMER.ACK.>",
	"$JS.EVENT.ADVISORY.>",
}

// apiAdvisories report requests to JetStream's API, not messages.
const apiAdvisories = "$JS.EVENT.ADVISORY.API"

// keptFolder returns a folder for the logs of a run. A failed test keeps the folder and prints its path.
func keptFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "notifier-chaos-")
	kit.Check(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs of workers and NATS servers, and a record of acknowledgements and advisories: %s", folder)
			return
		}
		_ = os.RemoveAll(folder)
	})
	return folder
}

// record is a file with a line for each message on the subjects in heard, as one NATS server delivered it.
type record struct {
	path string

	mu   sync.Mutex
	file *bufio.Writer
}

// listen records each NATS server separately, because a client hears nothing while its server is down.
func (d *deployment) listen() {
	d.Helper()
	for i, url := range strings.Split(d.urls["NATS_URL"], ",") {
		r := &record{path: filepath.Join(d.kept, fmt.Sprintf("nats-%d.messages", i+1))}
		file, err := os.Create(r.path)
		kit.Check(d.T, err)
		r.file = bufio.NewWriter(file)
		d.records = append(d.records, r)
		connection, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
			nats.ReconnectJitter(0, 0), nats.IgnoreDiscoveredServers())
		kit.Check(d.T, err)
		d.Cleanup(func() {
			connection.Close()
			_ = r.flush()
			_ = file.Close()
		})
		for _, subject := range heard {
			_, err := connection.Subscribe(subject, r.add)
			kit.Check(d.T, err)
		}
	}
}

func (r *record) add(message *nats.Msg) {
	if strings.HasPrefix(message.Subject, apiAdvisories) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintf(r.file, "%s %s %s\n", clock(time.Now()), message.Subject, message.Data)
}

func (r *record) flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.file.Flush()
}

// said returns the recorded lines about a stream message in order of time, without reports of progress.
func (d *deployment) said(seq uint64) (lines []string) {
	for i, r := range d.records {
		err := r.flush()
		text, unread := os.ReadFile(r.path)
		if err != nil || unread != nil {
			d.Errorf("%s cannot be read: %v, %v", r.path, err, unread)
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			_, rest, _ := strings.Cut(line, " ")
			subject, payload, _ := strings.Cut(rest, " ")
			if sequenceOf(subject, payload) == seq && payload != "+WPI" {
				lines = append(lines, fmt.Sprintf("%s (server %d)", line, i+1))
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// sequenceOf returns the stream sequence in an acknowledgement's subject or an advisory's payload. Zero means
// none.
func sequenceOf(subject, payload string) uint64 {
	if words := strings.Split(subject, "."); words[1] == "ACK" && len(words) == 9 {
		seq, _ := strconv.ParseUint(words[5], 10, 64)
		return seq
	}
	var about struct {
		Seq uint64 `json:"stream_seq"`
	}
	_ = json.Unmarshal([]byte(payload), &about)
	return about.Seq
}

// settles reports whether a recorded line is a worker's acknowledgement or termination.
func settles(line string) bool {
	return strings.Contains(line, " $JS.ACK.") && (strings.Contains(line, " +ACK") || strings.Contains(line, " +TERM"))
}

// TestRecordTellsWorkersFromServers checks that the audit can name the culprit of a loss.
func TestRecordTellsWorkersFromServers(t *testing.T) {
	t.Parallel()
	servers := kit.NATSCluster(t, 3, nil)
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.ClientURL())
	}
	d := &deployment{T: t, kept: t.TempDir(), urls: map[string]string{"NATS_URL": strings.Join(urls, ",")}}
	d.listen()
	connection := kit.JetStream(t, urls[0]).Conn()
	say := func(subject, payload string) { kit.Check(t, connection.Publish(subject, []byte(payload))) }
	terminated := "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.NOTIFY.notifier"
	kit.Eventually(t, "all servers pass everything on", func() bool {
		say("$JS.ACK.NOTIFY.notifier.1.17.9.1764162000000000000.0", "+WPI")
		say("$JS.ACK.NOTIFY.notifier.1.17.9.1764162000000000000.0", `-NAK {"delay":1}`)
		say(terminated, `{"stream_seq":17,"reason":"Unacknowledged message was deleted"}`)
		say("$JS.ACK.NOTIFY.notifier.1.18.10.1764162000000000000.0", "+TERM malformed")
		say(terminated, `{"stream_seq":18,"reason":"malformed"}`)
		lost, dead := d.said(17), d.said(18)
		for i := range servers {
			by := func(word string) func(string) bool {
				return func(l string) bool {
					return strings.Contains(l, word) && strings.HasSuffix(l, fmt.Sprintf("(server %d)", i+1))
				}
			}
			if !slices.ContainsFunc(lost, by("was deleted")) || !slices.ContainsFunc(dead, by("+TERM")) {
				return false
			}
		}
		return true
	})
	lost, dead := d.said(17), d.said(18)
	if slices.ContainsFunc(lost, settles) || !slices.ContainsFunc(dead, settles) {
		t.Errorf("settled by a worker: %q\nexpected of 18 alone: %q", lost, dead)
	}
	for _, line := range lost {
		if strings.Contains(line, "WPI") || strings.Contains(line, "malformed") {
			t.Errorf("%q is said of 17", line)
		}
	}
}
