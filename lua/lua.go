// Package lua holds the scripts that Redis runs. Each has its contract in its head comment; admit.lua is the one
// that decides. They stand in a package of their own because go:embed cannot reach a parent folder.
package lua

import _ "embed"

// Admit decides which events of a batch may be sent and charges them. See the head of admit.lua.
//
//go:embed admit.lua
var Admit string

// Sent records that an admitted event is in Slack. See the head of sent.lua.
//
//go:embed sent.lua
var Sent string

// Refund gives the slots of one admitted event back. See the head of refund.lua.
//
//go:embed refund.lua
var Refund string

// Pause keeps the pause that Slack has asked for. See the head of pause.lua.
//
//go:embed pause.lua
var Pause string

// Peek tells how full scopes are. See the head of peek.lua.
//
//go:embed peek.lua
var Peek string
