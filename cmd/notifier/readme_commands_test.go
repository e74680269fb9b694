package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// userDocuments show commands to those who use notifier, in the order in which a new user reads them;
// documents are all that show commands.
var (
	userDocuments = []string{
		"README.md", "docs/configuration.md", "docs/publishing.md", "docs/operating.md", "docs/runbook.md",
		"docs/security.md", "docs/benchmarks.md",
	}
	documents = append(slices.Clone(userDocuments), "CONTRIBUTING.md", "docs/design.md", "docs/compatibility.md")
)

var (
	prompted   = regexp.MustCompile(`(?m)^\$ (.*)$`)
	quoted     = regexp.MustCompile("`([^`\n]+)`")
	indented   = regexp.MustCompile(`(?m)^ {4,}((?:make|go|notifier(?:-dev)?|docker) .*)$`)
	assignment = regexp.MustCompile(`^[A-Z_]+=`)
	aCommand   = regexp.MustCompile(`^(make|go run|go test|docker compose|notifier(?:-dev)?) [a-z.-]`)
)

// commandsOf returns the commands that a document shows, without shell comments.
func commandsOf(t *testing.T, document string) []string {
	t.Helper()
	text := read(t, document)
	var commands []string
	for _, found := range prompted.FindAllStringSubmatch(text, -1) {
		commands = append(commands, found[1])
	}
	for _, pattern := range []*regexp.Regexp{quoted, indented} {
		for _, found := range pattern.FindAllStringSubmatch(text, -1) {
			if aCommand.MatchString(found[1]) {
				commands = append(commands, found[1])
			}
		}
	}
	for i, command := range commands {
		command, _, _ = strings.Cut(command, " #")
		commands[i] = strings.TrimSpace(command)
	}
	slices.Sort(commands)
	return slices.Compact(commands)
}

// TestDocumentedCommands: the commands in the documents exist, with their flags, targets, tests and files.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	makefile := read(t, "Makefile")
	total := 0
	for _, document := range documents {
		commands := commandsOf(t, document)
		total += len(commands)
		for _, command := range commands {
			words := shellWords(command)
			for assignment.MatchString(words[0]) {
				words = words[1:]
			}
			switch words[0] + " " + words[min(1, len(words)-1)] {
			case "go run":
				if program, found := strings.CutPrefix(words[2], "./cmd/"); found {
					parses(t, document, program, words[3:])
				} else if _, err := os.Stat(filepath.Join("../..", words[2])); err != nil && !strings.Contains(words[2], "@") {
					t.Errorf("%s: %s: %v", document, command, err)
				}
				continue
			case "go test":
				namesTests(t, document, words)
				continue
			case "docker compose":
				for i, word := range words {
					if word == "-f" {
						_ = read(t, words[i+1])
					}
				}
				continue
			}
			switch words[0] {
			case "notifier", "notifier-dev":
				parses(t, document, words[0], words[1:])
			case "make":
				if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(words[1]) + `:`).MatchString(makefile) {
					t.Errorf("%s: %s: the Makefile has no such target", document, command)
				}
			case "sh":
				_ = read(t, words[1])
			case ".ci/run", "curl", "nats", "redis-cli", "go", "sed": // others' commands, and the gate itself
			default:
				t.Errorf("%s: nothing is known of %q", document, command)
			}
		}
	}
	if total < 80 {
		t.Errorf("only %d commands are found", total)
	}
}

// shellWords splits a command line at blanks, but for those in quotes, and takes the quotes away.
func shellWords(command string) []string {
	part := regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
	var words []string
	for _, word := range regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`).FindAllString(command, -1) {
		words = append(words, part.ReplaceAllStringFunc(word, func(part string) string {
			if quote := part[0]; quote == '\'' || quote == '"' {
				return part[1 : len(part)-1]
			}
			return part
		}))
	}
	return words
}

// parses checks that a program knows the command and its flags: with -h behind them nothing is run.
func parses(t *testing.T, document, program string, arguments []string) {
	t.Helper()
	var said strings.Builder
	line := slices.Concat([]string{program}, arguments, []string{"-h"})
	var code int
	if program == "notifier" {
		code = run(t.Context(), line, strings.NewReader(""), io.Discard, &said)
	} else {
		command := exec.Command(developers.Build(t, programs), line[1:]...)
		command.Stderr = &said
		_ = command.Run() // ProcessState has how it ended
		code = command.ProcessState.ExitCode()
	}
	if code != exitDone {
		t.Errorf("%s: %s: exit code %d, %s", document, strings.Join(line, " "), code, said.String())
	}
}

// namesTests checks that a "go test" names a package and, with -run or -bench, a test in it.
func namesTests(t *testing.T, document string, words []string) {
	t.Helper()
	folder := words[len(words)-1]
	if folder == "./..." {
		return
	}
	files, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Errorf("%s: %s: there are no tests in %s", document, strings.Join(words, " "), folder)
		return
	}
	for i, word := range words {
		if (word == "-run" || word == "-bench") && words[i+1] != "^$" {
			pattern := regexp.MustCompile(words[i+1])
			found := false
			for name := range testsByPackage(t) {
				in, test, _ := strings.Cut(name, ".")
				found = found || in == filepath.Base(folder) && pattern.MatchString(test)
			}
			if !found {
				t.Errorf("%s: %s: no test of %s has such a name", document, strings.Join(words, " "), folder)
			}
		}
	}
}

// TestReadmeWalk runs every notifier command behind a prompt in the user documents, in order, against its own
// servers. Every command has to succeed.
func TestReadmeWalk(t *testing.T) {
	t.Parallel()
	developer := func(arguments ...string) *process {
		return startCommand(t, exec.Command(developers.Build(t, programs), arguments...), nil)
	}
	demo := developer("demo")
	server, slack, env := services(t, nil)
	worker := start(t, env)
	admin := adminURL(t, &worker.out)
	week := filepath.Join(t.TempDir(), "last-week.log")
	run := 0
	for _, words := range walk(t) {
		for i, word := range words {
			if word == "last-week.log" {
				kit.Check(t, os.WriteFile(week, []byte(worker.out.String()), 0o600))
				words[i] = week
			}
		}
		if words[0] == "dead" && len(worker.out.lines(`"outcome":"dead"`)) == 0 {
			twoLetters(t, server, &worker.out)
		}
		if words[0] == "simulate" {
			developer(words...).ends(t, exitDone)
		} else {
			runToEnd(t, env, exitDone, words...)
		}
		run++
		if words[0] == "publish" {
			kit.Eventually(t, "it is in Slack", func() bool { return slack.Accepted() > 0 && len(worker.out.lines(`"outcome":"sent"`)) > 0 })
		}
	}
	if run < 12 {
		t.Errorf("%d commands were run, expected all that the documents show", run)
	}
	if status, _ := get(t, admin+"/"); status != 200 {
		t.Errorf("the page answers %d", status)
	}
	demo.ends(t, exitDone)
}

// twoLetters publishes two events that become dead letters. docs/runbook.md replays the first and deletes the
// second.
func twoLetters(t *testing.T, server *devstack.NATS, log *output) {
	t.Helper()
	js := kit.JetStream(t, server.URL())
	for i, letter := range [][2]string{{"notify.deploys", `{"text":"v1.2.3","channel":"#ceo"}`}, {"notify.errors", `{"text":"disk full","cost":12}`}} {
		_, err := js.Publish(t.Context(), letter[0], []byte(letter[1]))
		kit.Check(t, err)
		kit.Eventually(t, "it is a letter", func() bool { return len(log.lines(`"outcome":"dead"`)) == i+1 })
	}
}

// walk returns the arguments of every notifier command behind a prompt, in the order of the documents; but
// for the demo, which needs servers of its own.
func walk(t *testing.T) (commands [][]string) {
	t.Helper()
	for _, document := range userDocuments {
		for _, found := range prompted.FindAllStringSubmatch(read(t, document), -1) {
			line, _, _ := strings.Cut(found[1], " #")
			words := shellWords(strings.TrimSpace(strings.TrimPrefix(line, "go run ./cmd/")))
			if strings.HasPrefix(words[0], "notifier") && words[1] != "demo" {
				commands = append(commands, words[1:])
			}
		}
	}
	return commands
}
