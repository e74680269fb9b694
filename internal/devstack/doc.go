// Package devstack runs the services that notifier needs inside one process: a NATS server with JetStream, a
// Redis (the embedded store, which runs the same scripts) and a fake Slack that records the posts it receives
// and can be told to fail. It is for notifier-dev and the tests; cmd/notifier, which is deployed, does not
// contain it.
//
// The package knows these services. It does not know the worker.
package devstack
