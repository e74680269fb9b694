package consume

// crashPoint names a step between two states of an event. A build with the tag "crashpoints" dies there when it is told
// to (crash_build.go), so that tests can show that a crash at any step loses nothing; every other build goes on.
type crashPoint string

const (
	afterPull    crashPoint = "after-pull"    // events are in hand, nothing is decided
	afterVerdict crashPoint = "after-verdict" // the script has charged what it admitted
	afterPost    crashPoint = "after-post"    // Slack has the message, nobody has noted it
	afterRecord  crashPoint = "after-record"  // Redis knows that it is sent
	afterLog     crashPoint = "after-log"     // its line is written
	afterAck     crashPoint = "after-ack"     // the acknowledgement is handed to the connection
)
