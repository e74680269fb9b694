// Package lua holds the scripts that Redis runs. The head comment of each script is its contract; admit.lua is the one
// that decides. They are in a package of their own because go:embed cannot reach a parent directory.
//
// The package does not know who calls the scripts: packages ratelimit, stats and digest do.
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

// Answered records Slack's answer to a post: its time, and the pause that it begins or ends. See the head of answered.lua.
//
//go:embed answered.lua
var Answered string

// Pauses lists the pauses that Slack has asked for. See the head of pauses.lua.
//
//go:embed pauses.lua
var Pauses string

// Damaged names the keys of another type than the scripts store there. See the head of damaged.lua.
//
//go:embed damaged.lua
var Damaged string

// Peek returns how full scopes are. See the head of peek.lua.
//
//go:embed peek.lua
var Peek string

// Flush adds the counts of one replica to those of all replicas. See the head of flush.lua.
//
//go:embed flush.lua
var Flush string

// Now returns the server's time. See the head of now.lua.
//
//go:embed now.lua
var Now string

// DigestTake lets one replica at a time post the digest. See the head of digest_take.lua.
//
//go:embed digest_take.lua
var DigestTake string

// DigestDone records the result of an attempt to post the digest. See the head of digest_done.lua.
//
//go:embed digest_done.lua
var DigestDone string

// DigestBegin records that the digest is about to be posted. See the head of digest_begin.lua.
//
//go:embed digest_begin.lua
var DigestBegin string

// Reform stores a scope in its other form. See the head of reform.lua.
//
//go:embed reform.lua
var Reform string

// Tidy records which categories have had admissions, and removes what is stale. See the head of tidy.lua.
//
//go:embed tidy.lua
var Tidy string

// Restore puts back what one replica remembers of its admissions. See the head of restore.lua.
//
//go:embed restore.lua
var Restore string

// Healed is where replicas agree that a store may decide again. See the head of healed.lua.
//
//go:embed healed.lua
var Healed string
