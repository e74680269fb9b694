//go:build production

package main

import "github.com/rogpeppe/go-internal/testscript"

// devstackCommands: a build without the embedded servers has none.
func devstackCommands() map[string]func(ts *testscript.TestScript, neg bool, args []string) {
	return nil
}
