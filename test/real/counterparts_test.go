package real

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"notifier/test/kit"
)

// requirement names the variable that makes a missing counterpart a failure, and has the Go programs built.
const requirement = "NOTIFIER_TEST_REAL"

// counterpart is another project's program or package that notifier runs with.
type counterpart struct {
	name    string   // of the program
	tried   string   // a summary of its tests
	version []string // the arguments that print the version; of a package the command

	// Of a Go program: where to build it, and its package.
	module, source string

	found, result string // its version, and how its tests ended; guarded by mu
}

// mu also lets one test at a time build a program.
var mu sync.Mutex

// The rows of the table, in its order.
var (
	nginxRow = &counterpart{
		name:    "nginx",
		tried:   "TLS, HTTP/2, gzip, `keepalive_requests 3`, reloads while posting, 502 as HTML, `limit_req` with 429",
		version: []string{"-v"},
	}
	slacktestRow = &counterpart{
		name: "slacktest of slack-go", tried: "texts, blocks, attachments and threads by `SLACK_API_URL`",
		version: []string{"go", "list", "-m", "-f", "{{.Version}}", "github.com/slack-go/slack"},
	}
	squidRow = &counterpart{
		name: "squid", tried: "CONNECT with a password, killed and restarted", version: []string{"-v"},
	}
	prometheusRow = &counterpart{
		name: "prometheus", tried: "scrapes with `ADMIN_TOKEN`, metrics and rules", version: []string{"--version"},
	}
	collectorRow = &counterpart{
		name: "otelcol", tried: "OTLP over HTTP with gzip, TLS with client certificates", version: []string{"--version"},
		module: "programs", source: "./otelcol",
	}
	redisRow = &counterpart{
		name: "redis-server", tried: "TLS with client certificates, the ACL file of `docs/security.md`, killed and restarted",
		version: []string{"--version"},
	}
	natsServerRow = &counterpart{
		name: "nats-server", tried: "accounts, the permissions of `docs/security.md`, TLS with client certificates, killed and restarted",
		version: []string{"--version"}, module: ".", source: "github.com/nats-io/nats-server/v2",
	}
	natsRow = &counterpart{
		name: "nats", tried: "publishes, pauses and resumes the consumer, purges the stream", version: []string{"--version"},
		module: "programs", source: "github.com/nats-io/natscli/nats",
	}
	counterparts = []*counterpart{
		nginxRow, slacktestRow, squidRow, prometheusRow, collectorRow, redisRow, natsServerRow, natsRow,
	}
)

// need returns the path of the program, and records the result of the test in the table.
func (c *counterpart) need(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath(c.name)
	if err != nil && os.Getenv(requirement) != "require" {
		t.Skipf("%s is not installed, or not in PATH", c.name)
	}
	if err != nil && c.source != "" {
		path, err = c.build()
	}
	if err != nil {
		t.Fatalf("%s requires %s: %v", requirement, c.name, err)
	}
	c.record(t, path)
	return path
}

// build builds the program, unless another test has.
func (c *counterpart) build() (path string, err error) {
	mu.Lock()
	defer mu.Unlock()
	path = filepath.Join(folder, c.name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	command := exec.Command("go", "build", "-o", path, c.source)
	command.Dir = c.module
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

var versionShape = regexp.MustCompile(`\d+\.\d+\.\d+|\d+\.\d+`)

// record finds out the version, and records the result of the test when the test ends. A package has no path.
func (c *counterpart) record(t *testing.T, path string) {
	t.Helper()
	command := exec.Command(path, c.version...)
	if path == "" {
		command = exec.Command(c.version[0], c.version[1:]...)
	}
	out, err := command.CombinedOutput()
	version := string(versionShape.Find(out))
	if err != nil || version == "" {
		t.Fatalf("the version of %s: %v\n%s", c.name, err, out)
	}
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		c.found = version
		if t.Failed() {
			c.result = "FAILED"
		} else {
			c.result = cmp.Or(c.result, "passed")
		}
	})
}

func table() string {
	var rows strings.Builder
	rows.WriteString("| counterpart | version | tried | result |\n| --- | --- | --- | --- |\n")
	for _, c := range counterparts {
		fmt.Fprintf(&rows, "| %s | %s | %s | %s |\n", c.name, c.found, c.tried, cmp.Or(c.result, "not run"))
	}
	return rows.String()
}

const (
	document   = "../../docs/compatibility.md"
	begin, end = "<!-- real -->\n", "<!-- /real -->"
)

// writeTable replaces the table in the document.
func writeTable() error {
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(text, []byte(begin))
	_, after, ended := bytes.Cut(rest, []byte(end))
	if !found || !ended {
		return fmt.Errorf("%s: there is no %s...%s", document, begin, end)
	}
	return os.WriteFile(document, fmt.Appendf(nil, "%s%s%s%s%s", before, begin, table(), end, after), 0o644)
}

// TestTheDocumentHasTheTable: the table in the document names all counterparts, and all have passed.
func TestTheDocumentHasTheTable(t *testing.T) {
	t.Parallel()
	if *write {
		t.Skip("-write makes the table")
	}
	text, err := os.ReadFile(document)
	kit.Check(t, err)
	for _, c := range counterparts {
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(c.name) + ` \| [0-9.]+ \| ` + regexp.QuoteMeta(c.tried) + ` \| passed \|$`)
		if !row.Match(text) {
			t.Errorf("%s has no row of %s that says passed; run make real", document, c.name)
		}
	}
}

// process is a counterpart that runs.
type process struct {
	path      string
	arguments []string
	env       []string
	said      kit.Output
	command   *exec.Cmd
	ended     <-chan struct{}
}

// start starts a program, which ends with the test. Its environment has only these variables and PATH.
func start(t *testing.T, path string, env []string, arguments ...string) *process {
	t.Helper()
	p := &process{path: path, arguments: arguments, env: append(env, "PATH="+os.Getenv("PATH"))}
	t.Cleanup(func() {
		if t.Failed() {
			said := p.said.String()
			t.Logf("%s: %s", filepath.Base(path), said[max(0, len(said)-4000):])
		}
	})
	p.again(t)
	return p
}

// again starts the program after it was killed.
func (p *process) again(t *testing.T) {
	t.Helper()
	p.command = exec.Command(p.path, p.arguments...)
	p.command.Env, p.command.Stdout, p.command.Stderr = p.env, &p.said, &p.said
	var err error
	p.ended, err = kit.StartWithTest(t, p.command)
	kit.Check(t, err)
}

// kill ends the program as a crash would.
func (p *process) kill(t *testing.T) {
	t.Helper()
	kit.Check(t, p.command.Process.Kill())
	<-p.ended
}
