// Package chaos proves, from outside, what becomes of events while everything around the workers breaks. It has tests
// only. Workers are processes that are killed, stopped and cut off; NATS, Redis and Slack become unavailable and recover; then an
// account is made of every event that JetStream has acknowledged (account_test.go says of what).
//
// TestChaos breaks things at random, from a seed that it prints. NOTIFIER_CHAOS_SEED repeats the choice of faults, as far
// as timing allows; NOTIFIER_CHAOS_TIME is how long it takes in total (60s); NOTIFIER_CHAOS_HISTORY=always or never keeps the
// channel readable, or not. TestCrashAtEveryStep kills workers at each
// step between two states of an event, alone and in pairs.
package chaos
