package main

import (
	"context"
	"fmt"
	"runtime"
)

// Set by the linker: -X main.version=... -X main.commit=...
var (
	version = "dev"
	commit  = ""
)

func versionText() string {
	if commit == "" {
		return "gangd " + version
	}
	return fmt.Sprintf("gangd %s (%s)", version, commit)
}

func versionCommand(t *terminal) *command {
	flags := newFlags("version")
	asJSON := flags.Bool("json", false, "Print it as JSON.")
	return &command{
		name: "version", flags: flags,
		synopsis: "Print the version",
		text:     "Prints the version of gangd, and the commit that it was built from.",
		action: func(_ context.Context, args []string) int {
			if len(args) > 0 {
				return t.misuse("version takes no arguments")
			}
			if *asJSON {
				return t.printJSON(map[string]string{"version": version, "commit": commit, "go": runtime.Version()})
			}
			fmt.Fprintln(t.out, versionText())
			return exitOK
		},
	}
}
