// Package lua holds the scripts that Redis runs. The head comment of each script is its contract; admit.lua
// is the one that decides. They are in a package of their own because go:embed cannot reach a parent
// directory.
//
// The package does not know who calls the scripts: packages ratelimit, steering and report do.
package lua

import _ "embed"

// Admit decides which events of a batch may be sent and charges them. See the head of admit.lua.
//
//go:embed admit.lua
var Admit string

// Begin permits a post, and records it before it is made. See the head of begin.lua.
//
//go:embed begin.lua
var Begin string

// Sent records that an admitted event is in Slack. See the head of sent.lua.
//
//go:embed sent.lua
var Sent string

// Refund releases the slots of one admitted event. See the head of refund.lua.
//
//go:embed refund.lua
var Refund string

// Answered records Slack's answer to a post: its time, and the pause that it begins or ends. See the head of
// answered.lua.
//
//go:embed answered.lua
var Answered string

// Pauses lists the pauses that Slack has asked for. See the head of pauses.lua.
//
//go:embed pauses.lua
var Pauses string

// Peek returns how full scopes are. See the head of peek.lua.
//
//go:embed peek.lua
var Peek string

// Now returns the server's time. See the head of now.lua.
//
//go:embed now.lua
var Now string

// Steer changes mutes and temporary limits. See the head of steer.lua.
//
//go:embed steer.lua
var Steer string

// Restore puts back what one replica remembers of its admissions. See the head of restore.lua.
//
//go:embed restore.lua
var Restore string

// Quarantine names the store, and says when it opens. See the head of quarantine.lua.
//
//go:embed quarantine.lua
var Quarantine string
