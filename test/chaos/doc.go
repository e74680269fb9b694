// Package chaos proves, from outside, what becomes of events while everything around the workers breaks. It
// has tests only. Workers are processes that are killed, stopped and cut off; NATS, Redis and Slack become
// unavailable and recover; then every event that JetStream has acknowledged is audited (audit_test.go says
// how).
//
// TestChaos breaks things at random, from a seed that it prints. NOTIFIER_CHAOS_SEED repeats the choice of
// faults, as far as timing allows; NOTIFIER_CHAOS_TIME is how long it takes in total (20s);
// NOTIFIER_CHAOS_HISTORY=always or never keeps the channel readable, or not. It alone is among the everyday
// tests; NOTIFIER_TEST_LONG=1 runs the others below.
//
// TestCrashAtEveryStep kills workers at each step between two states of an event, alone and in pairs.
//
// TestCluster kills the leaders of a cluster: three NATS servers as processes (natsserver), a Redis with two
// replicas under Sentinel, and four workers. It prints how long there was no leader, as an independent client
// sees it, and how much longer workers did nothing. NOTIFIER_CHAOS_RETENTION=limits has the stream keep settled
// events. TestTwoStreamsShareOneLimit has two deployments in one namespace.
//
// A failed run keeps the logs of workers and NATS servers, and a record of acknowledgements and advisories, in a
// folder that it prints (kept_test.go).
//
// TestRollingUpgrade replaces workers of the release before by those of this code, and goes back.
// NOTIFIER_TEST_RELEASE is the program of that release.
//
// In TestChaos, TestStoreLoss and TestRollingUpgrade operators mute categories and set temporary limits
// meanwhile (operators_test.go). A line that says muted must name a mute that may have been in force; what
// was published after a worker had surely followed a mute must not be posted by it; and windows are judged by
// the limits that may have been in force.
package chaos
