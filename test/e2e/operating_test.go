//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"notifier/test/kit"
)

// clone is a directory with the files of a fresh clone, and the project that runs from it.
type clone struct {
	*project
	directory string
	published map[string]bool // ids of events
}

// testOperating runs the commands of the README's deployment and every shell block of docs/operating.md, in
// their order, from a clone that only its owner may read. Events arrive before and after each block: each is
// posted once.
func testOperating(t *testing.T, e *engine) {
	c := newClone(t, e)
	for _, command := range prompted(section(t, "README.md", "Deploy")) {
		if strings.Contains(command, " -f ") { // the demo, which is another project
			continue
		}
		out := c.shell(t, command)
		if command == "sh deploy/init.sh" {
			c.append(t, ".env", append(slices.Clone(fakeSlack), "SLACK_PACE=off", "LIMIT_GLOBAL=1000/30m", "NOTIFIER_REPLICAS=2", "COMPOSE_PROJECT_NAME="+c.name)...)
			c.shell(t, "docker compose up -d fake-slack")
		}
		if strings.Contains(command, "publish -wait") && !sentTo(out, "#e2e") {
			t.Errorf("%s: %s", command, out)
		}
	}
	c.published["disk full"] = true // of the README
	blocks := shellBlocks(t, "docs/operating.md")
	for i, block := range blocks {
		t.Logf("%s: %s", block.heading, strings.ReplaceAll(strings.TrimSpace(block.script), "\n", "; "))
		removed := block.heading == "Restore" || block.heading == "Removing it"
		switch {
		case block.heading == "Backup":
			c.settle(t)
			clear(c.published) // the fake Slack stops, too, and forgets
		case block.heading == "Restore":
			clear(c.published)
			c.shell(t, "docker compose down --volumes")
		case !removed:
			c.publishes(t, fmt.Sprintf("before-%d", i))
		}
		out := c.shell(t, block.script)
		if block.heading != "Removing it" {
			c.publishes(t, fmt.Sprintf("after-%d", i))
			c.settle(t)
		}
		c.check(t, block.heading, out)
		if t.Failed() {
			return
		}
	}
	if len(blocks) < 8 {
		t.Errorf("%d blocks, expected all of the document", len(blocks))
	}
}

// check looks at the effect of a block.
func (c *clone) check(t *testing.T, heading, out string) {
	t.Helper()
	status := func() string { return c.shell(t, "docker compose run --rm -T cli status") }
	switch heading {
	case "Changing a setting":
		if out := status(); !strings.Contains(out, "20/30m") {
			t.Errorf("after the change the status is\n%s", out)
		}
	case "Scaling":
		if n := len(c.replicas(t, "notifier")); n != 4 {
			t.Errorf("%d workers, expected 4", n)
		}
	case "Passwords":
		address := strings.TrimSpace(lastLines(out, 1))
		connection, err := nats.Connect(strings.Replace(address, "127.0.0.1:4222", c.address(t, "nats", "4222"), 1))
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		connection.Close()
	case "Restore":
		if out := c.shell(t, "docker compose run --rm -T cli why e2e-before-1-0"); !strings.Contains(out, "sent") {
			t.Errorf("Redis and NATS have not come back: %s", out)
		}
	case "Removing it":
		filter := []string{"-q", "--filter", "label=com.docker.compose.project=" + c.name}
		if out := c.docker(t, append([]string{"ps", "-a"}, filter...)...) + c.docker(t, append([]string{"volume", "ls"}, filter...)...); out != "" {
			t.Errorf("left behind: %s", out)
		}
	}
}

// newClone makes the directory. Its override adds the fake Slack, and builds an image from the one that is
// there.
func newClone(t *testing.T, e *engine) *clone {
	t.Helper()
	directory := t.TempDir()
	for _, folder := range []string{"deploy", "observability"} {
		kit.Check(t, os.CopyFS(filepath.Join(directory, folder), os.DirFS("../../"+folder)))
	}
	image := e.production + "-operating"
	for name, text := range map[string]string{
		"docker-compose.yml":          repository(t, "docker-compose.yml"),
		".env.example":                repository(t, ".env.example"),
		"Dockerfile.e2e":              "FROM " + e.production + " AS production\n",
		"docker-compose.override.yml": repository(t, slackFile) + "    build: {dockerfile: Dockerfile.e2e}\n", // of notifier
	} {
		kit.Check(t, os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600))
	}
	kit.Check(t, filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		mode := fs.FileMode(0o600)
		if entry.IsDir() {
			mode = 0o700
		}
		err = errors.Join(err, os.Chmod(path, mode))
		if os.Geteuid() == 0 { // otherwise root of a container could read everything here
			err = errors.Join(err, os.Lchown(path, 1000, 1000))
		}
		return err
	}))
	c := &clone{project: e.project(t, "operating", nil), directory: directory, published: map[string]bool{}}
	c.command = []string{"docker", "compose", "-p", c.name, "--project-directory", directory, "--env-file", filepath.Join(directory, ".env"),
		"-f", filepath.Join(directory, "docker-compose.yml"), "-f", filepath.Join(directory, "docker-compose.override.yml")}
	c.environment = slices.DeleteFunc(c.environment, func(v string) bool { return strings.HasPrefix(v, "NOTIFIER_ENV_FILE=") })
	c.environment = append(c.environment, "NOTIFIER_IMAGE="+image)
	t.Cleanup(func() {
		if _, err := e.run(context.Background(), teardownDeadline, "docker", "image", "rm", "-f", image); err != nil {
			t.Errorf("remove the image: %v", err)
		}
	})
	t.Cleanup(func() { c.down(t) })
	return c
}

// append adds lines to a file.
func (c *clone) append(t *testing.T, name string, lines ...string) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(c.directory, name), os.O_APPEND|os.O_WRONLY, 0)
	kit.Check(t, err)
	_, err = file.WriteString(strings.Join(lines, "\n") + "\n")
	kit.Check(t, errors.Join(err, file.Close()))
}

// shell runs commands in the clone, and fails with the first one that does.
func (c *clone) shell(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, 2*commandDeadline)
	defer cancel()
	command := exec.CommandContext(ctx, "sh", "-euc", script)
	command.Dir, command.Env = c.directory, c.environment
	var errOut strings.Builder
	command.Stderr = &errOut
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", script, err, out, lastLines(errOut.String(), 40))
	}
	return string(out)
}

// publishes publishes two events of a category of their own. A server that restarts gets them again.
func (c *clone) publishes(t *testing.T, prefix string) {
	t.Helper()
	c.readPasswords(t, filepath.Join(c.directory, ".env"))
	for n := range 2 {
		id := fmt.Sprintf("e2e-%s-%d", prefix, n)
		message := nats.NewMsg("notify." + prefix)
		message.Header.Set(nats.MsgIdHdr, id)
		message.Data = []byte(id)
		c.until(t, id+" is accepted", func() (bool, string) {
			js, end := c.jetstream(t, "publisher", "_INBOX_publisher")
			defer end()
			_, err := js.PublishMsg(c.ctx, message)
			return err == nil, fmt.Sprint(err)
		})
		c.published[id] = true
	}
}

// settle waits until all published events are posted, and checks that none was posted twice.
func (c *clone) settle(t *testing.T) {
	t.Helper()
	posts := map[string]int{}
	c.until(t, "all events are posted", func() (bool, string) {
		var inbox struct{ Messages []struct{ Text string } }
		c.project.slack(t).read(t, "/inbox.json", &inbox)
		posts = map[string]int{}
		for _, message := range inbox.Messages {
			posts[message.Text]++
		}
		var absent []string
		for id := range c.published {
			if posts[id] == 0 {
				absent = append(absent, id)
			}
		}
		return len(absent) == 0, fmt.Sprintf("%d of %d are not: %v", len(absent), len(c.published), absent)
	})
	for id, count := range posts {
		if count != 1 || !c.published[id] {
			t.Errorf("%q was posted %d times, expected each published event once", id, count)
		}
	}
}

// prompted returns the commands behind a prompt.
func prompted(block string) (commands []string) {
	for _, found := range regexp.MustCompile(`(?m)^\$ (.*)$`).FindAllStringSubmatch(block, -1) {
		commands = append(commands, strings.Replace(found[1], "docker compose run --rm", "docker compose run --rm -T", 1))
	}
	return commands
}

// shellBlock is a block of commands in a document.
type shellBlock struct{ heading, script string }

func shellBlocks(t *testing.T, file string) (blocks []shellBlock) {
	t.Helper()
	for _, section := range strings.Split(repository(t, file), "\n## ")[1:] {
		heading, body, _ := strings.Cut(section, "\n")
		for _, found := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(body, -1) {
			script := strings.ReplaceAll(found[1], "docker compose run --rm cli", "docker compose run --rm -T cli")
			blocks = append(blocks, shellBlock{heading, strings.ReplaceAll(script, "docker compose run --rm notifier", "docker compose run --rm -T notifier")})
		}
	}
	return blocks
}

// fencedBlock returns the first block of a kind below a heading.
func fencedBlock(t *testing.T, file, heading, kind string) string {
	t.Helper()
	_, block, begins := strings.Cut(section(t, file, heading), "```"+kind+"\n")
	block, _, ends := strings.Cut(block, "```")
	if !begins || !ends {
		t.Fatalf("%s has no block %s below %q", file, kind, heading)
	}
	return block
}

// section returns the text below a heading.
func section(t *testing.T, file, heading string) string {
	t.Helper()
	_, section, found := strings.Cut(repository(t, file), "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatalf("%s has no %q", file, heading)
	}
	return section
}
