//go:build e2e

package e2e_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/test/kit"
)

// project is docker-compose.yml with overrides, under a name of its own.
type project struct {
	*engine
	name        string
	command     []string // "docker compose" with the flags that all its commands have
	environment []string
	passwords   map[string]string // by variable
}

// users are the variables with the passwords of NATS's users.
var users = map[string]string{
	"notifier": "NATS_WORKER_PASSWORD", "publisher": "NATS_PUBLISHER_PASSWORD", "operator": "NATS_OPERATOR_PASSWORD",
}

// project makes a project for one test. Settings are lines of its .env.
func (e *engine) project(t *testing.T, name string, overrides []string, settings ...string) *project {
	t.Helper()
	p := &project{engine: e, name: fmt.Sprintf("notifier-e2e-%d-%s", os.Getpid(), name), passwords: map[string]string{}}
	for _, variable := range append(slices.Collect(maps.Values(users)), "REDIS_PASSWORD") {
		p.passwords[variable] = "p" + strings.ToLower(rand.Text())
		settings = append(settings, variable+"="+p.passwords[variable])
	}
	file := filepath.Join(t.TempDir(), ".env")
	kit.Check(t, os.WriteFile(file, []byte(strings.Join(settings, "\n")+"\n"), 0o600))
	p.command = []string{"docker", "compose", "--env-file", file, "-p", p.name, "-f", "docker-compose.yml"}
	for _, override := range overrides {
		p.command = append(p.command, "-f", override)
	}
	p.environment = append(slices.Clone(e.environment), "NOTIFIER_ENV_FILE="+file)
	return p
}

// try runs a docker compose command.
func (p *project) try(deadline time.Duration, arguments ...string) (string, error) {
	return p.runWith(p.ctx, deadline, p.environment, slices.Concat(p.command, arguments)...)
}

// compose runs a docker compose command that must succeed.
func (p *project) compose(t *testing.T, arguments ...string) string {
	t.Helper()
	out, err := p.try(commandDeadline, arguments...)
	kit.Check(t, err)
	return out
}

// up starts services and sees to it that nothing of the project is left after the test.
func (p *project) up(t *testing.T, arguments ...string) {
	t.Helper()
	t.Cleanup(func() { p.down(t) })
	p.compose(t, append([]string{"up", "-d", "--no-build", "--pull", "never"}, arguments...)...)
}

func (p *project) down(t *testing.T) {
	ctx := context.Background() // the test's may have ended
	if t.Failed() {
		out, _ := p.runWith(ctx, teardownDeadline, p.environment, slices.Concat(p.command, []string{"logs", "--tail", "20"})...)
		t.Logf("the last of each log:\n%s", out)
	}
	down := append(slices.Clone(p.command), "down", "--volumes", "--remove-orphans", "--timeout", "5")
	if _, err := p.runWith(ctx, teardownDeadline, p.environment, down...); err != nil {
		t.Errorf("tear down: %v", err)
	}
}

// replicas are the ids of a service's containers, stopped ones too, in the order of their index.
func (p *project) replicas(t *testing.T, service string) []string {
	t.Helper()
	var ids []string
	for _, line := range strings.Split(strings.TrimSpace(p.compose(t, "ps", "-a", "--format", "json", service)), "\n") {
		var container struct{ ID, Name string }
		if err := json.Unmarshal([]byte(line), &container); err != nil {
			t.Fatalf("docker compose ps: %v in %q", err, line)
		}
		ids = append(ids, container.Name+" "+container.ID)
	}
	slices.Sort(ids) // by name, which ends with the index
	for i, id := range ids {
		_, ids[i], _ = strings.Cut(id, " ")
	}
	return ids
}

// address is the host:port under which a container's port is published.
func (p *project) address(t *testing.T, service string, port string) string {
	t.Helper()
	return strings.TrimSpace(p.compose(t, "port", service, port))
}

// logLine has the compared fields of a worker's log line.
type logLine struct {
	Msg, Category, Outcome, Reason, Limit string
	EventID                               string `json:"event_id"`
}

// settled gives the log's lines about settled events, of all replicas (index 0) or of one, and how many lines
// are not JSON.
func (p *project) settled(t *testing.T, service string, index int) (settled []logLine, broken int) {
	t.Helper()
	arguments := []string{"logs", "--no-log-prefix", "--no-color"}
	if index > 0 {
		arguments = append(arguments, fmt.Sprintf("--index=%d", index))
	}
	for _, text := range strings.Split(strings.TrimSpace(p.compose(t, append(arguments, service)...)), "\n") {
		var line logLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			broken++
			continue
		}
		if line.Outcome != "" {
			settled = append(settled, line)
		}
	}
	return settled, broken
}

// untilSettled waits until the logs have the outcomes of a number of different events, and returns all their
// lines.
func (p *project) untilSettled(t *testing.T, service string, events int) (lines []logLine, broken int) {
	t.Helper()
	p.until(t, fmt.Sprintf("%d events are settled", events), func() (bool, string) {
		lines, broken = p.settled(t, service, 0)
		ids := map[string]bool{}
		for _, line := range lines {
			ids[line.EventID] = true
		}
		return len(ids) >= events, fmt.Sprintf("%d of them", len(ids))
	})
	return lines, broken
}

// untilAcknowledged waits until the consumer has nothing to deliver and waits for no acknowledgement.
func (p *project) untilAcknowledged(t *testing.T) {
	t.Helper()
	js, end := p.jetstream(t, "notifier", "_NOTIFIER.NOTIFY.worker")
	defer end()
	consumer, err := js.Consumer(p.ctx, "NOTIFY", "notifier")
	kit.Check(t, err)
	p.until(t, "all events are acknowledged", func() (bool, string) {
		info, err := consumer.Info(p.ctx)
		if err != nil {
			return false, err.Error()
		}
		return info.NumPending == 0 && info.NumAckPending == 0, fmt.Sprintf("%d pending, %d not acknowledged", info.NumPending, info.NumAckPending)
	})
}

// jetstream connects through the published port as a user of deploy/nats.conf, who may subscribe below inbox.
func (p *project) jetstream(t *testing.T, user, inbox string) (js jetstream.JetStream, end func()) {
	t.Helper()
	return connect(t, p.address(t, "nats", "4222"), user, p.passwords[users[user]], inbox)
}

func connect(t *testing.T, address, user, password, inbox string) (js jetstream.JetStream, end func()) {
	t.Helper()
	connection, err := nats.Connect("nats://"+address, nats.UserInfo(user, password), nats.CustomInboxPrefix(inbox))
	kit.Check(t, err)
	js, err = jetstream.New(connection)
	kit.Check(t, err)
	return js, connection.Close
}

// publish publishes a burst through the published port: an event in each of the categories, in this order. It
// returns the categories by event id; ids of one prefix are all different. The text of an event is its id.
func (p *project) publish(t *testing.T, prefix string, order []string) map[string]string {
	t.Helper()
	js, end := p.jetstream(t, "publisher", "_INBOX_publisher")
	defer end()
	categoryOf := map[string]string{}
	for n, category := range order {
		id := fmt.Sprintf("e2e-%s-%d", prefix, n)
		message := nats.NewMsg("notify." + category)
		message.Header.Set(nats.MsgIdHdr, id)
		message.Data = []byte(id)
		if _, err := js.PublishMsgAsync(message, jetstream.WithStallWait(kit.Patience)); err != nil {
			t.Fatal(err)
		}
		categoryOf[id] = category
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(waitDeadline):
		t.Fatalf("%d events are not stored after %s", js.PublishAsyncPending(), waitDeadline)
	}
	return categoryOf
}

// slack is the fake one's side of the story.
type slack struct {
	*project
	url string
}

func (p *project) slack(t *testing.T) slack {
	t.Helper()
	scheme := "http://" // the demo's, for browsers
	if slices.Contains(p.config(t)["fake-slack"].Command, "-https") {
		scheme = "https://"
	}
	s := slack{p, scheme + p.address(t, "fake-slack", "8090")}
	p.until(t, "the fake Slack answers", func() (bool, string) {
		_, err := s.ask(http.MethodGet, "/healthz", "")
		return err == nil, fmt.Sprint(err)
	})
	return s
}

func (s slack) ask(method, path, body string) ([]byte, error) {
	request, err := http.NewRequestWithContext(s.ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, path, response.Status, answer)
	}
	return answer, err
}

// accepted returns the number of accepted posts, by /fake/faults.
func (s slack) accepted(t *testing.T) int {
	t.Helper()
	var stats struct{ Accepted int }
	s.read(t, "/fake/faults", &stats)
	return stats.Accepted
}

var eventID = regexp.MustCompile(`e2e-[a-z0-9-]+`)

// posts gives, by event id, how often it was posted, by /inbox.json.
func (s slack) posts(t *testing.T) map[string]int {
	t.Helper()
	var inbox struct {
		Accepted int
		Messages []struct{ Text string }
	}
	s.read(t, "/inbox.json", &inbox)
	if inbox.Accepted != len(inbox.Messages) {
		t.Fatalf("/inbox.json has %d of %d messages", len(inbox.Messages), inbox.Accepted)
	}
	posts := map[string]int{}
	for _, message := range inbox.Messages {
		id := eventID.FindString(message.Text)
		if id == "" {
			t.Errorf("a message that names no event: %q", message.Text)
		}
		posts[id]++
	}
	return posts
}

func (s slack) read(t *testing.T, path string, into any) {
	t.Helper()
	answer, err := s.ask(http.MethodGet, path, "")
	if err == nil {
		err = json.Unmarshal(answer, into)
	}
	kit.Check(t, err)
}

// sentTo reports whether "publish -wait" shows an event as sent to a channel.
func sentTo(out, channel string) bool {
	return regexp.MustCompile(` sent +- +` + regexp.QuoteMeta(channel) + ` `).MatchString(out)
}
