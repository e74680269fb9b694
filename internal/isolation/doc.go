// Package isolation measures, from outside, what one channel, one event or one flood costs the others. It has tests only.
// Workers are processes of the released build beside a real Redis, NATS, and the fake Slack, which limits channels as Slack
// does. Each test is a row of a table: what was measured, and the bar that it has to meet. docs/benchmarks.md has the table.
//
// The tests run at a tenth of the scale: a tenth of the events, and of the seconds that Slack and the pace ask for.
// NOTIFIER_ISOLATION=full, or make isolation, runs them at full scale, which takes some minutes.
package isolation
