// Package buildinfo knows which build of notifier is running: its version and commit. It does not know who asks.
package buildinfo

import "runtime/debug"

// Set by the linker in releases:
// -ldflags "-X notifier/internal/buildinfo.version=v1.2.3 -X notifier/internal/buildinfo.commit=0123abc".
var (
	version = ""
	commit  = ""
)

// Version is the release's, else the module version that Go recorded, else "devel".
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// Commit is the release's, else the revision that Go recorded, else "unknown".
func Commit() string {
	if commit != "" {
		return commit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				return setting.Value
			}
		}
	}
	return "unknown"
}
