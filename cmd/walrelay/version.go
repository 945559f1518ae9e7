package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker (Makefile, Dockerfile).
var version string

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version, commit and Go release",
		Args:  known,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "walrelay %s (%s %s/%s)\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// buildVersion is what the linker was told, else what Go knows: the module's version after
// "go install …@version", the commit after "go build" in a clone.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	commit := settings["vcs.revision"]
	switch {
	case info.Main.Version != "" && info.Main.Version != "(devel)":
		return info.Main.Version
	case len(commit) < 12:
		return "unknown"
	case settings["vcs.modified"] == "true":
		return commit[:12] + "-dirty"
	}
	return commit[:12]
}
