// Package isolation measures, from outside, how one slow channel or one flood affects other categories. It
// contains only tests. Workers are processes of the released build and run against a real Redis, NATS, and
// the fake Slack, which limits channels as Slack does. Each test measures a row of the table in
// docs/benchmarks.md and compares it with a bar.
//
// An ordinary test run includes one row, with fewer events: a slow channel must not delay the others.
// NOTIFIER_ISOLATION=full, or make isolation, runs all rows, which takes several minutes.
package isolation
