package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v3"
)

// Set by the linker in releases: -ldflags "-X main.releaseVersion=v1.2.3 -X main.releaseCommit=0123abc".
var (
	releaseVersion = ""
	releaseCommit  = ""
)

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print version, commit and Go version",
		Description: `Example:
   notifier version`,
		Action: func(_ context.Context, cmd *cli.Command) error {
			if err := noArguments(cmd); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.Root().Writer, "notifier %s\ncommit %s\n%s %s/%s\n", version(), commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// version is the release's, else what Go knows of the module, else "devel".
func version() string {
	if releaseVersion != "" {
		return releaseVersion
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// commit is the release's, else what Go has stamped, else "unknown".
func commit() string {
	if releaseCommit != "" {
		return releaseCommit
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
