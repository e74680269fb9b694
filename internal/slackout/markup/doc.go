// Package markup makes texts and Block Kit of publishers harmless before they go to Slack: nothing in them
// pings, each link shows where it goes, and nothing changes how the rest of the message is shown.
//
// It goes by lists of what is known to be harmless. In texts &, < and > are escaped, so that nothing is
// markup; only links to Hosts keep their words. Block Kit is checked and rewritten by a table of types and
// fields (types.go): what the table does not have is an error, so that what Slack adds later is rejected
// until somebody has looked at it.
//
// The package knows Slack's markup and Block Kit. It does not know events, requests or settings.
//
// Reading order: text.go (texts), escape.go (cutting them), links.go (URLs and Hosts), blocks.go (how a table
// is applied to JSON), types.go (the table), fields.go and shown.go (what the table refers to).
package markup
