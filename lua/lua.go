// Package lua holds the scripts that Redis runs. The head comment of each script is its contract; admit.lua
// alone decides. The package exists because go:embed cannot reach a parent directory.
package lua

import _ "embed"

// Admit decides a batch of events and charges those that it admits.
//
//go:embed admit.lua
var Admit string

// Record stands before most of the other scripts: the form of a record in flight, and how slots move.
//
//go:embed record.lua
var Record string

// Scripts that begin with Record.
var (
	Begin      = Record + begin      // permits a post, and records it before it is made
	Answered   = Record + answered   // records Slack's response, and begins or ends a pause
	Sent       = Record + sent       // records that the event is in Slack
	Refund     = Record + refund     // ends an event in flight, and may give its slots back
	Peek       = Record + peek       // counts how full scopes are
	Restore    = Record + restore    // restores the admissions of one worker
	Quarantine = Record + quarantine // names the store, and closes it until workers have restored theirs
)

var (
	//go:embed begin.lua
	begin string
	//go:embed answered.lua
	answered string
	//go:embed sent.lua
	sent string
	//go:embed refund.lua
	refund string
	//go:embed peek.lua
	peek string
	//go:embed restore.lua
	restore string
	//go:embed quarantine.lua
	quarantine string
)

// Pauses lists the pauses that Slack has requested.
//
//go:embed pauses.lua
var Pauses string

// Now returns the server's time.
//
//go:embed now.lua
var Now string

// Steer changes mutes and temporary limits.
//
//go:embed steer.lua
var Steer string
