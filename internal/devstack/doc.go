//go:build !production

// Package devstack holds what notifier needs around it, inside one process: a NATS server with JetStream, a Redis
// (the embedded store, which runs the same scripts) and a fake Slack that shows what it received and can be told to
// misbehave. It serves `notifier demo`, `notifier dev` and the tests; production builds (-tags production) do not
// contain it.
package devstack
