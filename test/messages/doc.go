// Package messages counts, from outside, the messages that reach Slack around an outage of Slack. It has
// tests only. Three workers share a real NATS and Redis. A storm of events arrives while Slack is down, one
// worker is killed and started again, and the publisher continues for two windows after Slack is back. No
// rolling window at the fake Slack may hold more messages than its limit, however long events have waited.
//
// Redis and the fake Slack share this machine's clock, so the windows are compared to the microsecond.
package messages
