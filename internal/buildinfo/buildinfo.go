// Package buildinfo knows which build of notifier is running: its version and commit. It does not know who
// asks.
package buildinfo

import (
	_ "embed"
	"runtime/debug"
	"strings"
)

// release is the file VERSION: "v0.3.0" is that release, and "v0.4.0-dev" what comes before the next one.
//
//go:embed VERSION
var release string

// Set by the linker, for builds that have a name of their own:
// -ldflags "-X notifier/internal/buildinfo.version=v1.2.3 -X notifier/internal/buildinfo.commit=0123abc".
var (
	version = ""
	commit  = ""
)

// Version is the linker's, else that of the file VERSION.
func Version() string {
	if version != "" {
		return version
	}
	return strings.TrimSpace(release)
}

// Commit is the linker's, else the revision that Go recorded, with "-dirty" where files differed from it,
// else "unknown".
func Commit() string {
	if commit != "" {
		return commit
	}
	info, _ := debug.ReadBuildInfo()
	return recorded(info)
}

// recorded is the revision in what Go recorded, which may be nil.
func recorded(info *debug.BuildInfo) string {
	of, modified := "unknown", ""
	if info == nil {
		return of
	}
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			of = setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			modified = "-dirty"
		}
	}
	return of + modified
}
