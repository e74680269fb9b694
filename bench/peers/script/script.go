// Package script has the Lua script that several peers share.
package script

import _ "embed"

// Admit decides about one event. Its first lines say what it takes and returns.
//
//go:embed admit.lua
var Admit string
