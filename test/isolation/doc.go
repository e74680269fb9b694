// Package isolation measures, from outside, how one slow channel or one flood affects other categories. It
// has tests only. Workers are processes of the released build beside a real Redis, NATS, and the fake Slack,
// which limits channels as Slack does. Each test measures a row of the table in docs/benchmarks.md and
// compares it with a bar.
//
// One test, with fewer events, runs with all other tests: that a slow channel costs the others nothing.
// NOTIFIER_ISOLATION=full, or make isolation, runs every row, which takes some minutes.
package isolation
