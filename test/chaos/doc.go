// Package chaos tests workers from outside, as processes, while everything around them fails. Workers are
// killed, frozen and cut off; NATS, Redis and Slack become unavailable and recover. Then every event that
// JetStream acknowledged is audited (audit_test.go).
//
// TestChaos injects random faults from a seed that it prints. NOTIFIER_CHAOS_SEED repeats the choice of
// faults, as far as timing allows; NOTIFIER_CHAOS_TIME sets the total duration (20s);
// NOTIFIER_CHAOS_HISTORY=always or never keeps the channel readable or unreadable throughout. The tests
// below run only with NOTIFIER_TEST_LONG=1.
//
// TestCrashAtEveryStep kills workers at each step between two states of an event, alone and in pairs.
//
// TestStoreLoss makes Redis lose admissions that the workers have to restore.
//
// TestCluster kills the leaders of a cluster: three NATS servers as processes (natsserver), a Redis with
// two replicas under Sentinel, and four workers. It prints how long an independent client saw no leader,
// and how much longer the workers were idle. With NOTIFIER_CHAOS_RETENTION=limits the stream keeps
// settled events. TestTwoStreamsShareOneLimit runs two deployments in one namespace.
//
// TestRollingUpgrade replaces the workers of the previous release with this code, and rolls back.
// NOTIFIER_TEST_RELEASE is the path of that release's binary.
//
// In TestChaos, TestStoreLoss and TestRollingUpgrade operators also mute categories and set temporary
// limits (operators_test.go). A line that says muted must name a mute that may have been in force, a
// worker that had certainly applied a mute must not post events published later, and windows are judged
// by the limits that may have been in force.
//
// A failed run keeps the logs of workers and NATS servers, and a record of acknowledgements and
// advisories, in a folder that it prints (kept_test.go).
package chaos
