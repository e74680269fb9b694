//go:build !linux

package kit

import "syscall"

// diesWithTest has no means here: a process outlives a test that is killed.
func diesWithTest() *syscall.SysProcAttr { return nil }
