package main

import (
	"os"
	"strings"
	"testing"

	"notifier/test/kit"
)

// The tests of docs/security.md run the fenced blocks of that document.

// securityBlock is the fenced block of a kind in docs/security.md.
func securityBlock(t *testing.T, kind string) string {
	t.Helper()
	document, err := os.ReadFile("../../docs/security.md")
	kit.Check(t, err)
	_, rest, found := strings.Cut(string(document), "\n```"+kind+"\n")
	block, _, ended := strings.Cut(rest, "\n```\n")
	if !found || !ended {
		t.Fatalf("docs/security.md has no block %q", kind)
	}
	return block
}
