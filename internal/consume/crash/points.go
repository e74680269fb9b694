// Package crash names the steps between two states of an event at which a test build can die, so that tests
// can show that a crash at any step loses nothing.
package crash

// Point is such a step. A build with the tag "crashpoints" dies there on request (build.go); every other
// build continues.
type Point string

const (
	AfterPull    Point = "after-pull"    // events are in flight, nothing is decided
	AfterVerdict Point = "after-verdict" // the script has charged the admitted events
	AfterPost    Point = "after-post"    // Slack has the message, nothing has recorded that
	AfterFailure Point = "after-failure" // Redis knows that the post failed
	AfterRecord  Point = "after-record"  // Redis has it as sent, and not yet in the channel's pace
	AfterLog     Point = "after-log"     // its line is written
	AfterAck     Point = "after-ack"     // the connection has taken the acknowledgement
)
