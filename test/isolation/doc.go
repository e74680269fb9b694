// Package isolation measures, from outside, what one slow channel or one flood costs the others. It has tests
// only. Workers are processes of the released build beside a real Redis, NATS, and the fake Slack, which
// limits channels as Slack does. Each test is a row of a table: what was measured, and the bar that it has to
// meet. docs/benchmarks.md has the table.
//
// With the other tests one of them runs, on fewer events: that a slow channel costs the others nothing.
// NOTIFIER_ISOLATION=full, or make isolation, runs all of them, which takes some minutes.
package isolation
