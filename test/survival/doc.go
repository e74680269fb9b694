// Package survival measures how many admissions the limit has too many when Redis fails over or comes back
// empty, and for how long nothing is decided then. It has tests only. Four replicas, limiters as a worker has
// them, ask a real Redis for more than the limits give; then something happens to that Redis, and they go on
// until the limits are used up again. What they were answered is counted by their own records, and not by
// what Redis remembers.
//
// With the other tests two of them run, under the limits that nothing leaves meanwhile. make survive runs
// each scenario NOTIFIER_SURVIVE_ROUNDS times and prints a table; docs/design.md has it.
// NOTIFIER_SURVIVE_HEALING=off shows what there is to be healed.
package survival
