package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"notifier/internal/buildinfo"
	"notifier/test/kit"
)

// TestOneVersion: the file VERSION, the changelog, the image and compose name the same version. CONTRIBUTING.md says how it changes.
func TestOneVersion(t *testing.T) {
	t.Parallel()
	version := buildinfo.Version()
	var sections []string
	for _, found := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(read(t, "CHANGELOG.md"), -1) {
		sections = append(sections, found[1])
	}
	if len(sections) == 0 {
		t.Fatal("CHANGELOG.md has no section")
	}
	next, development := strings.CutSuffix(version, "-dev")
	dated := regexp.MustCompile(`^(v\d+\.\d+\.\d+) \(20\d\d-\d\d-\d\d\)$`)
	switch {
	case development && sections[0] != "Unreleased":
		t.Errorf("CHANGELOG.md begins with %q, expected Unreleased, as the version is %s", sections[0], version)
	case !development && !strings.HasPrefix(sections[0], version+" ("):
		t.Errorf("CHANGELOG.md begins with %q, expected %s and the date", sections[0], version)
	}
	for i, section := range sections {
		found := dated.FindStringSubmatch(section)
		if development && i == 0 {
			continue
		}
		if found == nil || development && found[1] == next {
			t.Errorf("section %q of CHANGELOG.md, expected a release before %s as in \"v0.1.0 (2026-11-23)\"", section, version)
		}
	}
	for file, line := range map[string]string{
		"Dockerfile":         "\nARG VERSION=" + version + "\n",
		"docker-compose.yml": "VERSION: ${NOTIFIER_VERSION:-" + version + "}\n",
	} {
		if !strings.Contains(read(t, file), line) {
			t.Errorf("%s does not have %q", file, strings.TrimSpace(line))
		}
	}
}

// TestTheReleaseBeforeIsFound plays releases in a repository: which one is built, and what is said where there is none.
func TestTheReleaseBeforeIsFound(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"git", "bash", "sed", "tar"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not in PATH: %v", tool, err)
		}
	}
	r := repository{t, t.TempDir()}
	r.write(".ci/release-before", read(t, ".ci/release-before"))
	r.write("go.mod", "module notifier\n")
	r.release("v0.1.0", "## v0.1.0 (2026-01-01)\n")
	r.ends("there is no release before v0.1.0", 3)

	r.commit("## Unreleased\n\n## v0.1.0 (2026-01-01)\n", "v0.2.0-dev")
	r.builds("v0.1.0")
	r.release("v0.2.0", "## v0.2.0 (2026-02-02)\n\n## v0.1.0 (2026-01-01)\n")
	r.builds("v0.1.0")
	r.commit("## Unreleased\n\n## v0.2.0 (2026-02-02)\n\nThe date was wrong.\n\n## v0.1.0 (2026-01-01)\n", "v0.3.0-dev")
	r.builds("v0.2.0")

	r.git("tag", "v0.2.0", "HEAD~2") // a tag goes before the history; this one is wrong
	r.ends("the tag v0.2.0 is at the version 'v0.2.0-dev'", 1)
	r.git("tag", "--delete", "v0.2.0")

	shallow := repository{t, t.TempDir()}
	shallow.git("clone", "--quiet", "--depth", "1", "file://"+r.folder, ".")
	shallow.ends("no commit of this history has the version v0.2.0", 3)
	kit.Check(t, os.RemoveAll(filepath.Join(shallow.folder, ".git")))
	shallow.ends("this is no git repository", 3)
}

// repository is one with programs that print their version.
type repository struct {
	*testing.T
	folder string
}

func (r repository) write(name, text string) {
	r.Helper()
	path := filepath.Join(r.folder, name)
	kit.Check(r.T, os.MkdirAll(filepath.Dir(path), 0o755))
	kit.Check(r.T, os.WriteFile(path, []byte(text), 0o755))
}

// command is one that git's variables are hidden from: in a hook of git they name the repository that this code is in.
func (r repository) command(name string, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(r.Context(), name, arguments...)
	command.Env = append(slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "GIT_") }),
		"GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
	return command
}

func (r repository) git(arguments ...string) {
	r.Helper()
	of := []string{"-C", r.folder, "-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main"}
	if out, err := r.command("git", append(of, arguments...)...).CombinedOutput(); err != nil {
		r.Fatalf("git %s: %v\n%s", arguments, err, out)
	}
}

// commit commits a program of a version, with a changelog.
func (r repository) commit(changelog, version string) {
	r.Helper()
	r.write("CHANGELOG.md", "# Changelog\n\n"+changelog)
	r.write("internal/buildinfo/VERSION", version+"\n")
	r.write("cmd/notifier/main.go", "package main\n\nfunc main() { println(\""+version+"\") }\n")
	r.git("init", "--quiet")
	r.git("add", "--all")
	r.git("commit", "--quiet", "--message", version)
}

// release commits a release, after a change that is not one.
func (r repository) release(version, changelog string) {
	r.Helper()
	r.commit("## Unreleased\n", version+"-dev")
	r.commit(changelog, version)
}

func (r repository) run() (out, complaints string, code int) {
	r.Helper()
	var text strings.Builder
	command := r.command("bash", filepath.Join(r.folder, ".ci/release-before"), r.TempDir())
	command.Stderr = &text
	printed, err := command.Output()
	if command.ProcessState == nil {
		r.Fatal(err)
	}
	return strings.TrimSpace(string(printed)), text.String(), command.ProcessState.ExitCode()
}

// builds expects the program of a version.
func (r repository) builds(version string) {
	r.Helper()
	program, complaints, code := r.run()
	if code != 0 {
		r.Fatalf("exit code %d: %s", code, complaints)
	}
	if out, err := r.command(program).CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != version {
		r.Errorf("the program prints %q, %v, expected %s", out, err, version)
	}
}

// ends expects no program, but a reason and an exit code.
func (r repository) ends(reason string, code int) {
	r.Helper()
	if program, complaints, got := r.run(); got != code || !strings.Contains(complaints, reason) || program != "" {
		r.Errorf("exit code %d, %q, %q, expected %d, nothing, and %q", got, program, complaints, code, reason)
	}
}
