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

// heard lists the recorded subjects: acknowledgements as workers send them, acknowledgements as the
// consumer's leader samples them (createConsumer sets the rate to 100%), and advisories.
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

// record is a file with a line for each message on the subjects in heard, as delivered by one NATS
// server.
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

// said returns the recorded lines about a stream message in order of time, except progress (+WPI).
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

// sequenceOf returns the stream sequence in an acknowledgement's subject or an advisory's payload. It
// returns 0 if neither has one.
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
