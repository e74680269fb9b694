// Package devstack runs the services that notifier needs inside one process: a NATS server with JetStream, a
// Redis (the embedded store, which runs the same scripts) and a fake Slack that shows what it received and
// can be made to fail. It is for notifier-dev and the tests; cmd/notifier, which is deployed, does not
// contain it.
//
// The package knows these services. It does not know the worker.
//
// Reading order: nats.go, redis.go and slack.go (the services), slack_http.go (posts), slack_update.go
// (edits), slack_history.go (reading a channel), slack_behaviour.go (one failure), slack_mode.go (failures
// for a while) with slack_mode_http.go and slack_limits.go, slack_inbox.go (the page), listen.go (addresses).
package devstack
