package consume

// crashPoint names a step between two states of an event. A build with the tag "crashpoints" dies there on request
// (crash_build.go), so that tests can show that a crash at any step loses nothing; every other build continues.
type crashPoint string

const (
	afterPull    crashPoint = "after-pull"    // events are in flight, nothing is decided
	afterVerdict crashPoint = "after-verdict" // the script has charged what it admitted
	afterPost    crashPoint = "after-post"    // Slack has the message, nothing has recorded that
	afterRecord  crashPoint = "after-record"  // Redis has it as sent
	afterLog     crashPoint = "after-log"     // its line is written
	afterAck     crashPoint = "after-ack"     // the connection has taken the acknowledgement
)
