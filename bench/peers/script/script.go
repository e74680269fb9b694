// Package script embeds the Lua script that several peers share.
package script

import _ "embed"

// Admit decides one event. Its first lines describe the keys, the arguments and the reply.
//
//go:embed admit.lua
var Admit string
