//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
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

// deploymentPorts is the range of the status pages; it is not the default one, which may be in use on this
// machine.
const (
	firstPage = 28081
	lastPage  = 28089
)

// rollEnds is when a worker that does not get ready ends the test's unsuccessful replacement, in seconds.
const rollEnds = "15"

// deployment is a directory as a clone of the repository has it, and what runs from it.
type deployment struct {
	*project
	directory string
	slack     slack
	published map[string]bool // ids of events
}

// testDeploying runs every command of docs/operating.md, in its order, while events arrive: each is posted
// once.
func testDeploying(t *testing.T, e *engine) {
	d := deploy(t, e)
	done := map[string]int{}
	for _, block := range shellBlocks(t, "../../docs/operating.md") {
		t.Logf("%s: %s", block.heading, strings.ReplaceAll(strings.TrimSpace(block.script), "\n", "; "))
		n := done[block.heading]
		done[block.heading]++
		name := strings.ReplaceAll(strings.ToLower(block.heading), " ", "-")
		running := block.heading != "First start" && block.heading != "Restore" && block.heading != "Removing it"
		if running {
			d.publishes(t, fmt.Sprintf("%s-%d-before", name, n), 2)
		}
		d.prepare(t, block.heading, n)
		out := ""
		if strings.Contains(block.script, "roll.sh") {
			out = d.whilePublishing(t, fmt.Sprintf("%s-%d-during", name, n), block.script)
		} else {
			out = d.shell(t, block.script)
		}
		if running {
			d.publishes(t, fmt.Sprintf("%s-%d-after", name, n), 2)
		}
		d.check(t, block.heading, n, out)
		if t.Failed() {
			return
		}
	}
	if len(done) < 9 {
		t.Errorf("commands are found below %d headings only: %v", len(done), done)
	}
}

// prepare does what a person does before a block of commands.
func (d *deployment) prepare(t *testing.T, heading string, block int) {
	t.Helper()
	switch {
	case heading == "First start" && block == 1:
		d.setting(t, "SLACK_BOT_TOKEN=xoxb-of-the-fake-slack", "SLACK_CHANNEL=#alerts", "SLACK_PACE=off", "NOTIFIER_REPLICAS=2", "LIMIT_GLOBAL=1000/30m",
			"SLACK_API_URL=http://fake-slack:8090/api/", "COMPOSE_PROJECT_NAME="+d.name, "COMPOSE_FILE=docker-compose.yml:e2e.yml")
	case heading == "A second team" && block == 2: // its own names, and the fake Slack for Slack
		d.append(t, "payments.env", "COMPOSE_PROJECT_NAME="+d.name+"-payments", "COMPOSE_FILE=docker-compose.yml:deploy/team.yml:e2e.yml",
			"SERVERS="+d.name, "SLACK_BOT_TOKEN=xoxb-of-the-team", "SLACK_API_URL=http://fake-slack:8090/api/", "NOTIFIER_REPLICAS=1")
	case heading == "Upgrading" && block == 0:
		d.image(t, "new")
	case heading == "Backup":
		d.shell(t, `docker compose run --rm -T publish nowhere -id lost-letter '{"text":"hello","channel":"#ceo"}'`)
		d.settle(t)
	case heading == "Restore":
		d.settle(t)
		d.shell(t, "docker compose down --volumes")
	}
}

// check looks at what a block of commands has done.
func (d *deployment) check(t *testing.T, heading string, block int, out string) {
	t.Helper()
	expect := func(texts ...string) {
		for _, text := range texts {
			if !strings.Contains(out, text) {
				t.Errorf("%s: no %q in\n%s", heading, text, out)
			}
		}
	}
	limits := func() string { return d.shell(t, "docker compose run --rm -T cli status") }
	switch {
	case heading == "First start" && block == 1:
		expect("No failures", "1 published to notify.errors", "1000/30m")
	case heading == "The status pages":
		port := 0
		if _, err := fmt.Sscanf(lastLines(out, 1), "127.0.0.1:%d", &port); err != nil || port < firstPage || port > lastPage {
			t.Errorf("the page of the second worker is at %q, expected a port from %d to %d", lastLines(out, 1), firstPage, lastPage)
		}
		response, err := http.Get("http://" + lastLines(out, 1) + "/")
		kit.Check(t, err)
		kit.Check(t, response.Body.Close())
		if response.StatusCode != http.StatusOK {
			t.Errorf("the page answers %s", response.Status)
		}
	case heading == "Changing a setting":
		if out := limits(); !strings.Contains(out, "20/30m") || strings.Contains(out, "\nsettings ") {
			t.Errorf("after the change the status is\n%s", out)
		}
		d.checkMistake(t)
	case heading == "Upgrading" && block == 0:
		for _, id := range d.replicas(t, "notifier") {
			if label := d.docker(t, "inspect", "-f", `{{index .Config.Labels "e2e"}}`, id); label != "new" {
				t.Errorf("a worker runs the image %q, expected the new one", label)
			}
		}
	case heading == "Scaling":
		if n := len(d.replicas(t, "notifier")); n != 4 {
			t.Errorf("%d workers, expected 4", n)
		}
	case heading == "A second team" && block == 2:
		expect("No failures", "1 published to payments.refunds")
		d.published["a refund failed"] = true
		d.settle(t)
		d.checkTeam(t)
	case heading == "Restore" && block == 0:
		d.settle(t)
		if out := d.shell(t, "docker compose run --rm -T cli why e2e-backup-0-before-1"); !strings.Contains(out, "was sent") {
			t.Errorf("Redis has not come back: %s", out)
		}
		if out := d.shell(t, "docker compose run --rm -T dead list"); !strings.Contains(out, "lost-letter") {
			t.Errorf("NATS has not come back: %s", out)
		}
		d.publishes(t, "restored", 2)
		d.settle(t)
	case heading == "Restore":
		expect("nats://publisher:")
	case heading == "Removing it":
		if out := d.docker(t, "ps", "-aq", "--filter", "label=com.docker.compose.project="+d.name) +
			d.docker(t, "volume", "ls", "-q", "--filter", "label=com.docker.compose.project="+d.name); out != "" {
			t.Errorf("these are left: %s", out)
		}
	}
}

// checkMistake: a setting that is wrong costs one worker at most, and is repaired by the same commands.
func (d *deployment) checkMistake(t *testing.T) {
	t.Helper()
	d.setting(t, "LIMIT_GLOBAL=100 per hour")
	if _, err := d.tryShell("docker compose run --rm cli check"); err == nil {
		t.Error("check accepts a limit of 100 per hour")
	}
	_, err := d.tryShell("ROLL_TIMEOUT=" + rollEnds + " sh deploy/roll.sh")
	if code, said := exitOf(t, err); code != 1 || !strings.Contains(said, "the others are as they were") {
		t.Errorf("roll.sh with a limit of 100 per hour: exit code %d with %s; expected 1 and the reason", code, said)
	}
	d.publishes(t, "mistake", 2)
	d.settle(t) // by the worker that is left
	d.setting(t, "LIMIT_GLOBAL=1000/30m")
	d.shell(t, "sh deploy/roll.sh")
}

// checkTeam: the second team's users reach nothing of the first one, and limits are counted apart.
func (d *deployment) checkTeam(t *testing.T) {
	t.Helper()
	const team = "docker compose --env-file payments.env "
	if out := d.shell(t, team+"run --rm -T cli status"); !regexp.MustCompile(`(?m)^category/refunds .* 1 +0$`).MatchString(out) {
		t.Errorf("the team's status is\n%s", out)
	}
	if out := d.shell(t, "docker compose run --rm -T cli status"); strings.Contains(out, "refunds") || strings.Contains(out, "\nsettings ") {
		t.Errorf("the first team's status is\n%s", out)
	}
	for _, foreign := range []string{"run --rm -T -e NATS_SUBJECT=notify.> publish errors", "run --rm -T -e NATS_STREAM=NOTIFY dead list"} {
		if out, err := d.tryShell(team + foreign); err == nil {
			t.Errorf("the second team may %s: %s", foreign, out)
		}
	}
}

// deploy makes the directory, and starts a fake Slack beside it.
func deploy(t *testing.T, e *engine) *deployment {
	t.Helper()
	beside := e.project(t, "slack", []string{"demo"})
	beside.up(t, "fake-slack")
	d := &deployment{directory: t.TempDir(), slack: beside.slack(t), published: map[string]bool{}}
	kit.Check(t, os.CopyFS(filepath.Join(d.directory, "deploy"), os.DirFS("../../deploy")))
	for _, name := range []string{"docker-compose.yml", ".env.example"} {
		text, err := os.ReadFile("../../" + name)
		kit.Check(t, err)
		kit.Check(t, os.WriteFile(filepath.Join(d.directory, name), text, 0o600))
	}
	// Its image is made of the one that is there already, and the workers reach the fake Slack.
	kit.Check(t, os.WriteFile(filepath.Join(d.directory, "e2e.yml"), []byte(fmt.Sprintf(
		"services:\n  notifier: {build: {context: image}, networks: [slack]}\n  cli: {networks: [slack]}\n"+
			"networks:\n  slack: {external: true, name: %s_demo}\n", beside.name)), 0o600))
	image := e.production + "-deploying"
	files := filepath.Join(d.directory, "docker-compose.yml") + ":" + filepath.Join(d.directory, "e2e.yml")
	d.project = e.project(t, "deploying", nil, "COMPOSE_FILE="+files, "NOTIFIER_IMAGE="+image,
		fmt.Sprintf("NOTIFIER_PORTS=%d-%d", firstPage, lastPage))
	team := e.project(t, "deploying-payments", nil, "COMPOSE_FILE="+files+":"+filepath.Join(d.directory, "deploy/team.yml"))
	d.image(t, "old")
	t.Cleanup(func() {
		if _, err := e.run(context.Background(), teardownDeadline, "docker", "image", "rm", "-f", image); err != nil {
			t.Errorf("remove the image: %v", err)
		}
	})
	t.Cleanup(func() { d.down(t) })
	t.Cleanup(func() { team.down(t) })
	return d
}

// image prepares what "docker compose build" makes: the image that is there already, with a label.
func (d *deployment) image(t *testing.T, label string) {
	t.Helper()
	folder := filepath.Join(d.directory, "image")
	kit.Check(t, os.MkdirAll(folder, 0o700))
	text := "FROM " + d.production + " AS production\nLABEL e2e=" + label + "\n"
	kit.Check(t, os.WriteFile(filepath.Join(folder, "Dockerfile"), []byte(text), 0o600))
}

// setting adds lines to .env, where the last one of a name counts.
func (d *deployment) setting(t *testing.T, lines ...string) {
	t.Helper()
	d.append(t, ".env", lines...)
}

func (d *deployment) append(t *testing.T, name string, lines ...string) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(d.directory, name), os.O_APPEND|os.O_WRONLY, 0)
	kit.Check(t, err)
	_, err = file.WriteString(strings.Join(lines, "\n") + "\n")
	kit.Check(t, err)
	kit.Check(t, file.Close())
}

// shell runs commands in the directory, and fails with the first one that does.
func (d *deployment) shell(t *testing.T, script string) string {
	t.Helper()
	out, err := d.tryShell(script)
	kit.Check(t, err)
	return out
}

func (d *deployment) tryShell(script string) (string, error) {
	ctx, cancel := context.WithTimeout(d.ctx, 2*commandDeadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-eu", "-c", script)
	cmd.Dir, cmd.WaitDelay = d.directory, 10*time.Second
	// The names of the project and its files are in .env, so that another env file can have others.
	cmd.Env = slices.DeleteFunc(slices.Clone(d.environment), func(variable string) bool { return strings.HasPrefix(variable, "COMPOSE_FILE=") })
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), &commandError{command: []string{script}, code: cmd.ProcessState.ExitCode(), said: lastLines(out.String()+said.String(), 40), err: err}
	}
	return out.String(), nil
}

// whilePublishing runs commands while events arrive all the time.
func (d *deployment) whilePublishing(t *testing.T, prefix, script string) string {
	t.Helper()
	js, end := d.jetstream(t, "nats", "publisher", "_INBOX_publisher")
	defer end()
	var out string
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		out, err = d.tryShell(script)
	}()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-done:
			kit.Check(t, err)
			return out
		case <-ticker.C:
		}
		d.event(t, js, fmt.Sprintf("e2e-%s-%d", prefix, n), fmt.Sprintf("%s%d", prefix, n/5))
	}
}

// publishes publishes events of a category of their own.
func (d *deployment) publishes(t *testing.T, prefix string, count int) {
	t.Helper()
	js, end := d.jetstream(t, "nats", "publisher", "_INBOX_publisher")
	defer end()
	for n := range count {
		d.event(t, js, fmt.Sprintf("e2e-%s-%d", prefix, n), prefix)
	}
}

// event publishes one event. Until the stream has accepted it, nobody has promised anything: then it is
// published again.
func (d *deployment) event(t *testing.T, js jetstream.JetStream, id, category string) {
	t.Helper()
	message := nats.NewMsg("notify." + category)
	message.Header.Set(nats.MsgIdHdr, id)
	message.Data = []byte(id)
	d.until(t, id+" is accepted", func() (bool, string) {
		_, err := js.PublishMsg(d.ctx, message)
		return err == nil, fmt.Sprint(err)
	})
	d.published[id] = true
}

// settle waits until all that was published is posted, and checks that nothing was posted twice.
func (d *deployment) settle(t *testing.T) {
	t.Helper()
	d.until(t, "all events are posted", func() (bool, string) {
		posts := d.posts(t)
		var absent []string
		for id := range d.published {
			if posts[id] == 0 {
				absent = append(absent, id)
			}
		}
		slices.Sort(absent)
		return len(absent) == 0, fmt.Sprintf("%d of %d are not: %v", len(absent), len(d.published), absent)
	})
	for id, count := range d.posts(t) {
		if count != 1 || !d.published[id] && id != "disk full" {
			t.Errorf("%q was posted %d times, expected once each event that was published", id, count)
		}
	}
}

// posts is how often each text was posted.
func (d *deployment) posts(t *testing.T) map[string]int {
	t.Helper()
	var inbox struct{ Messages []struct{ Text string } }
	answer, err := d.slack.ask(http.MethodGet, "/inbox.json", "")
	kit.Check(t, err)
	kit.Check(t, json.Unmarshal(answer, &inbox))
	posts := map[string]int{}
	for _, message := range inbox.Messages {
		posts[message.Text]++
	}
	return posts
}

// shellBlock is what a document asks its reader to run.
type shellBlock struct{ heading, script string }

func shellBlocks(t *testing.T, file string) (blocks []shellBlock) {
	t.Helper()
	text, err := os.ReadFile(file)
	kit.Check(t, err)
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		heading, body, _ := strings.Cut(section, "\n")
		for _, found := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(body, -1) {
			blocks = append(blocks, shellBlock{heading: heading, script: found[1]})
		}
	}
	return blocks
}
