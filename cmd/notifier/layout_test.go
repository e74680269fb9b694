package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"notifier/test/kit"
)

// floors is the house from its foundation to its roof: a package imports only from floors below its own.
// docs/design.md describes each package.
var floors = [][]string{
	{
		"lua", "internal/outcome", "internal/redact", "internal/term", "internal/buildinfo", "internal/pattern",
		"internal/cached", "internal/cause", "internal/denial", "internal/devstack/embedded", "internal/devstack/https",
		"internal/http1", "internal/streams", "internal/wait",
		"internal/consume/crash", "internal/consume/post/lanes",
	},
	{"internal/event", "internal/ratelimit", "internal/snapshot", "internal/slackout/markup"},
	{"internal/slackout", "internal/status/config", "internal/status/report"},
	{"internal/steering", "internal/consume/availability"},
	{"internal/consume/feed"},
	{"internal/consume/result"},
	{"internal/consume/letters", "internal/consume/decide"},
	{"internal/consume/post"},
	{
		"internal/consume", "internal/status", "internal/status/digest", "internal/outcome/recent",
		"internal/devstack", "internal/devstack/simulate",
	},
	{"internal/telemetry", "internal/admin"},
	{"internal/settings"},
	{"internal/app", "internal/preflight", "internal/cli"},
	{"cmd/notifier", "cmd/notifier-dev"},
}

// testPackages are imported by tests alone.
var testPackages = []string{
	"test/kit", "test/natstest", "test/redistest", "test/chaos", "test/isolation", "test/messages", "test/natsloss", "test/real",
	"test/survival",
}

// packagesOf lists the packages of the module below cmd, internal, lua and test, each with its imports from
// the module.
func packagesOf(t *testing.T) map[string][]string {
	t.Helper()
	list := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./cmd/...", "./internal/...", "./lua",
		"./test/...")
	list.Dir = "../.."
	out, err := list.Output()
	kit.Check(t, err)
	packages := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		name := strings.TrimPrefix(words[0], "notifier/")
		packages[name] = []string{}
		for _, imported := range words[1:] {
			if own, found := strings.CutPrefix(imported, "notifier/"); found {
				packages[name] = append(packages[name], own)
			}
		}
	}
	return packages
}

// TestImportsRunDown: no package imports one of its own floor or of a floor above, and no package that only
// tests may use.
func TestImportsRunDown(t *testing.T) {
	t.Parallel()
	floorOf := map[string]int{}
	for i, names := range floors {
		for _, name := range names {
			floorOf[name] = i
		}
	}
	ofTests := func(name string) bool {
		return slices.ContainsFunc(testPackages, func(p string) bool { return name == p || strings.HasPrefix(name, p+"/") })
	}
	for name, imports := range packagesOf(t) {
		if ofTests(name) {
			continue
		}
		own, known := floorOf[name]
		if !known {
			t.Errorf("%s is on no floor: add it to floors", name)
		}
		for _, imported := range imports {
			if ofTests(imported) {
				t.Errorf("%s imports %s, which is for tests alone", name, imported)
			} else if floorOf[imported] >= own {
				t.Errorf("%s imports %s, which is not below it", name, imported)
			}
		}
	}
}

// TestDefaultTransportIsNotUsed: package http1 says why.
func TestDefaultTransportIsNotUsed(t *testing.T) {
	t.Parallel()
	forbidden := regexp.MustCompile(`http\.(DefaultTransport|DefaultClient|Get\(|Head\(|Post\(|PostForm\()`)
	for _, folder := range []string{"../../cmd", "../../internal"} {
		kit.Check(t, filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			for line := range strings.Lines(read(t, strings.TrimPrefix(path, "../../"))) {
				if code, _, _ := strings.Cut(line, "//"); forbidden.MatchString(code) {
					t.Errorf("%s: %s; use http1.NewTransport, or a transport without TLS", path, strings.TrimSpace(line))
				}
			}
			return nil
		}))
	}
}

// workingHalf lists the packages that decide about events and post them, with everything below them. They
// know nothing of the reportingHalf, which knows them by records, snapshots and the dry run of the script.
var (
	workingHalf = []string{
		"internal/consume", "internal/event", "internal/ratelimit", "internal/slackout", "internal/steering",
		"internal/outcome", "internal/snapshot",
	}
	reportingHalf = []string{"internal/status", "internal/preflight", "internal/admin"}
)

func TestWorkingHalfDoesNotImportTheReportingHalf(t *testing.T) {
	t.Parallel()
	in := func(half []string, name string) bool {
		return slices.ContainsFunc(half, func(p string) bool { return name == p || strings.HasPrefix(name, p+"/") })
	}
	packages := packagesOf(t)
	for name, imports := range packages {
		for _, imported := range imports {
			if in(workingHalf, name) && in(reportingHalf, imported) {
				t.Errorf("%s imports %s of the reporting half", name, imported)
			}
		}
	}
	for _, p := range slices.Concat(workingHalf, reportingHalf) {
		if _, known := packages[p]; !known {
			t.Errorf("there is no package %s", p)
		}
	}
}

// environmentReaders are the files that may read the environment. Only the first reads notifier's own
// variables.
var environmentReaders = []string{
	"internal/settings/environment.go",
	"internal/settings/proxy.go",      // HTTPS_PROXY, which is Go's
	"internal/cause/cause.go",         // SSL_CERT_FILE, likewise
	"internal/telemetry/tracing.go",   // OTEL_*, which are OpenTelemetry's
	"internal/term/screen.go",         // TERM and NO_COLOR, which are the terminal's
	"internal/consume/crash/build.go", // in a build for the tests of crashes
}

// TestTheEnvironmentIsReadInOnePlace: a reader of internal/settings knows all of notifier's variables.
func TestTheEnvironmentIsReadInOnePlace(t *testing.T) {
	t.Parallel()
	reads := regexp.MustCompile(`os\.(Getenv|LookupEnv|ExpandEnv)\(`)
	root := filepath.Join("..", "..")
	for _, folder := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			relative, err := filepath.Rel(root, path)
			kit.Check(t, err)
			name := filepath.ToSlash(relative)
			ofTests := slices.ContainsFunc(testPackages, func(p string) bool { return strings.HasPrefix(name, p+"/") })
			content, err := os.ReadFile(path)
			kit.Check(t, err)
			if !ofTests && reads.Match(content) && !slices.Contains(environmentReaders, name) {
				t.Errorf("%s reads the environment, expected internal/settings to", name)
			}
			return nil
		})
		kit.Check(t, err)
	}
}

// TestEveryLogLineIsDocumented: docs/runbook.md explains each log message, and only those that exist. A
// message may stand for those that begin like it: "the digest ...".
func TestEveryLogLineIsDocumented(t *testing.T) {
	t.Parallel()
	documented, logged := documentedLines(t), messagesOf(t)
	for message := range logged {
		if !slices.ContainsFunc(documented, func(d string) bool { return strings.HasPrefix(message, d) }) {
			t.Errorf("docs/runbook.md does not explain %q", message)
		}
	}
	for _, message := range documented {
		exists := false
		for is := range logged {
			exists = exists || strings.HasPrefix(is, message)
		}
		if !exists {
			t.Errorf("docs/runbook.md explains %q, which is never logged", message)
		}
	}
}

// logRows are the first cells of the tables of lines in docs/runbook.md.
func logRows(t *testing.T) (rows []string) {
	t.Helper()
	_, section, found := strings.Cut(read(t, "docs/runbook.md"), "\n## Log lines\n")
	if !found {
		t.Fatal("docs/runbook.md has no section about log lines")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	ofLines := false
	for row := range strings.Lines(section) {
		cells := strings.Split(row, "|")
		if len(cells) <= 3 {
			ofLines = false
			continue
		}
		if strings.TrimSpace(cells[1]) == "line" {
			ofLines = true
		} else if ofLines {
			rows = append(rows, cells[1])
		}
	}
	return rows
}

// documentedLines are the messages in the tables of lines.
func documentedLines(t *testing.T) (messages []string) {
	t.Helper()
	for _, row := range logRows(t) {
		for _, message := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row, -1) {
			if !strings.Contains(message[1], ": ") && message[1] != "channel" { // a field
				messages = append(messages, strings.TrimSuffix(message[1], " ..."))
			}
		}
	}
	return messages
}

// messagesOf returns the messages that the product logs above the debug level, except about settled events.
func messagesOf(t *testing.T) map[string]bool {
	t.Helper()
	call := regexp.MustCompile(`\b[lL]og\.(?:(?:Info|Warn|Error)\(|Log\([^"]*,)\s*"([^"]+)"`)
	messages := map[string]bool{}
	for _, folder := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join("..", "..", folder), func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			kit.Check(t, err)
			for _, found := range call.FindAllStringSubmatch(string(source), -1) {
				messages[found[1]] = true
			}
			return nil
		})
		kit.Check(t, err)
	}
	if len(messages) < 20 {
		t.Errorf("only %d messages are found: %v", len(messages), messages)
	}
	return messages
}
