package buildinfo

import (
	"regexp"
	"runtime/debug"
	"testing"
)

func TestWhatTheLinkerSetsComesFirst(t *testing.T) {
	if got := Version(); !regexp.MustCompile(`^v\d+\.\d+\.\d+(-dev)?$`).MatchString(got) {
		t.Errorf("version %q, expected that of the file VERSION, such as v1.2.3 or v1.2.3-dev", got)
	}
	if Commit() == "" {
		t.Error("no commit, expected something to show in any build")
	}
	version, commit = "v1.2.3", "0123abc"
	t.Cleanup(func() { version, commit = "", "" })
	if Version() != "v1.2.3" || Commit() != "0123abc" {
		t.Errorf("version %q, commit %q, expected those of the linker", Version(), Commit())
	}
}

func TestTheCommitSaysWhenFilesDiffered(t *testing.T) {
	settings := func(pairs ...string) *debug.BuildInfo {
		info := &debug.BuildInfo{}
		for i := 0; i < len(pairs); i += 2 {
			info.Settings = append(info.Settings, debug.BuildSetting{Key: pairs[i], Value: pairs[i+1]})
		}
		return info
	}
	for want, info := range map[string]*debug.BuildInfo{
		"0123abc":       settings("vcs", "git", "vcs.revision", "0123abc", "vcs.modified", "false"),
		"0123abc-dirty": settings("vcs.revision", "0123abc", "vcs.modified", "true"),
		"unknown":       nil,
	} {
		if got := recorded(info); got != want {
			t.Errorf("the commit is %q, expected %q", got, want)
		}
	}
	if got := recorded(settings("GOOS", "linux")); got != "unknown" {
		t.Errorf("the commit is %q, expected unknown", got)
	}
}
