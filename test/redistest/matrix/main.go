// Command matrix runs the limiter's tests on every kind of store and prints a Markdown table of versions and
// results:
//
//	go run ./test/redistest/matrix [KIND...]
//
// A KIND is a value of NOTIFIER_TEST_REDIS; see package redistest. The default is every kind. The table lists
// a kind that cannot run here with the reason. The command exits with 1 if a test fails.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

var kinds = []string{"process", "image:redis:8-alpine", "image:valkey/valkey:8-alpine", "cluster", "embedded"}

var packages = []string{"./internal/ratelimit", "./lua"}

func main() {
	flag.Parse()
	if flag.NArg() > 0 {
		kinds = flag.Args()
	}
	failed := false
	rows := []string{
		"| store | version | passed | failed | skipped | time |",
		"| --- | --- | --- | --- | --- | --- |",
	}
	for _, kind := range kinds {
		fmt.Fprintf(os.Stderr, "%s ...\n", kind)
		version, why := find(kind)
		if why != "" {
			rows = append(rows, fmt.Sprintf("| %s | %s not run: %s | | | | |", describe(kind), kind, why))
			continue
		}
		result := run(kind)
		failed = failed || result.failed > 0 || result.broken
		rows = append(rows, fmt.Sprintf("| %s | %s | %d | %d | %d | %.0f s |",
			describe(kind), version, result.passed, result.failed, result.skipped, result.took.Seconds()))
	}
	fmt.Println(strings.Join(rows, "\n"))
	if failed {
		os.Exit(1)
	}
}

func describe(kind string) string {
	switch {
	case strings.HasPrefix(kind, "image:"): // the version names it: an image of that name may be a stand-in
		return "one server, in a container"
	case kind == "process":
		return "one server"
	case kind == "cluster":
		return "Cluster of three servers"
	case kind == "embedded":
		return "embedded store"
	default:
		return kind
	}
}

var versionLine = regexp.MustCompile(`^(\w+) server v=(\S+)`)

// find gives the version of a store, or the reason why it is not there.
func find(kind string) (version, why string) {
	image, inContainer := strings.CutPrefix(kind, "image:")
	var command []string
	switch {
	case inContainer:
		if _, err := output("docker", "info"); err != nil {
			return "", "no Docker engine answers"
		}
		if _, err := output("docker", "image", "inspect", image); err != nil {
			if _, err := output("timeout", "300", "docker", "pull", "-q", image); err != nil {
				return "", "the image cannot be had"
			}
		}
		server := "redis-server"
		if strings.Contains(image, "valkey") {
			server = "valkey-server"
		}
		command = []string{"docker", "run", "--rm", "--network", "none", "--entrypoint", server, image, "--version"}
	case kind == "embedded":
		version, err := output("go", "list", "-m", "-f", "{{.Version}}", "github.com/alicebob/miniredis/v2")
		if err != nil {
			return "", err.Error()
		}
		return "miniredis " + version, ""
	default:
		command = []string{"redis-server", "--version"}
	}
	printed, err := output(command...)
	if err != nil {
		return "", err.Error()
	}
	if found := versionLine.FindStringSubmatch(printed); found != nil {
		return found[1] + " " + found[2], ""
	}
	return "", fmt.Sprintf("%q is no version", printed)
}

func output(command ...string) (string, error) {
	out, err := exec.Command(command[0], command[1:]...).Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// result counts tests by result; a subtest is counted with its test.
type result struct {
	passed, failed, skipped int
	broken                  bool // go test itself has failed, whatever the tests report
	took                    time.Duration
}

// run runs the tests on one kind of store. The output of failing and skipped tests goes to standard error.
func run(kind string) (r result) {
	command := exec.Command("go", append([]string{"test", "-json", "-count=1", "-timeout=5m"}, packages...)...)
	command.Env = append(os.Environ(), "NOTIFIER_TEST_REDIS="+kind)
	command.Stderr = os.Stderr
	started := time.Now()
	events, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return result{broken: true}
	}
	r.read(events)
	r.broken = command.Wait() != nil
	r.took = time.Since(started)
	return r
}

func (r *result) read(events io.Reader) {
	printed := map[string]*bytes.Buffer{} // by package and test
	for lines := bufio.NewReader(events); ; {
		line, err := lines.ReadBytes('\n')
		var event struct{ Action, Package, Test, Output string }
		switch {
		case err != nil:
			return
		case json.Unmarshal(line, &event) != nil:
			_, _ = os.Stderr.Write(line)
			continue
		}
		name, _, isSubtest := strings.Cut(event.Test, "/")
		key := event.Package + " " + name
		if printed[key] == nil {
			printed[key] = &bytes.Buffer{}
		}
		printed[key].WriteString(event.Output)
		if isSubtest || (event.Test == "" && event.Action != "fail") {
			continue
		}
		switch event.Action {
		case "pass":
			r.passed++
		case "skip":
			r.skipped++
		case "fail":
			if event.Test != "" {
				r.failed++
			}
		}
		if event.Action == "fail" || event.Action == "skip" {
			_, _ = os.Stderr.Write(printed[key].Bytes())
		}
	}
}
