// Package lua holds the scripts that Redis runs. Each has its contract in its head comment; admit.lua is the one
// that decides. They stand in a package of their own because go:embed cannot reach a parent folder.
package lua

import _ "embed"

// Admit decides which events of a batch may be sent and charges them. See the head of admit.lua.
//
//go:embed admit.lua
var Admit string

// Begin gives leave to post an admitted event, and notes the post before it is made. See the head of begin.lua.
//
//go:embed begin.lua
var Begin string

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

// Flush adds what one replica has counted to the counts of all. See the head of flush.lua.
//
//go:embed flush.lua
var Flush string

// Now tells the server's time. See the head of now.lua.
//
//go:embed now.lua
var Now string

// DigestTake lets one replica at a time post the digest. See the head of digest_take.lua.
//
//go:embed digest_take.lua
var DigestTake string

// DigestDone says how a try to post the digest went. See the head of digest_done.lua.
//
//go:embed digest_done.lua
var DigestDone string

// DigestBegin notes that the digest is about to be posted. See the head of digest_begin.lua.
//
//go:embed digest_begin.lua
var DigestBegin string
