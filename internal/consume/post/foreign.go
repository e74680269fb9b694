package post

import (
	"fmt"
	"sync"
	"time"

	"notifier/internal/slackout"
	"notifier/internal/snapshot"
)

// A 2xx response that is not Slack's may stand for a message: other chat servers take posts to webhooks, and
// reply in their own words. If each event were posted until Slack's word came, they would show it again and
// again. It does not count as sent either: a captive portal or a login page would swallow every event. So
// after foreignToStop of them, without a success since, the worker stops and says which response it got. It
// tries again after growing pauses.
const foreignToStop = 2

// Bounds of the pauses. Tests shorten them.
var (
	firstForeignPause = time.Minute
	maxForeignPause   = time.Hour
)

// foreign counts responses that are not Slack's since the last success, of all channels.
type foreign struct {
	mu      sync.Mutex
	count   int
	pause   time.Duration // the last one
	stopped time.Time     // when it began
}

// note counts the response to a post, and returns how long nothing is to be posted. Posts that were under way
// when a pause began do not prolong the next one.
func (f *foreign) note(posted time.Time) (pause time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count++; f.count < foreignToStop {
		return 0
	}
	if f.pause == 0 || posted.After(f.stopped) {
		f.pause = min(max(firstForeignPause, 2*f.pause), maxForeignPause)
		f.stopped = time.Now()
	}
	return time.Until(f.stopped.Add(f.pause))
}

// forget starts the count again after a success, or when no event is left to try.
func (f *foreign) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count, f.pause = 0, 0
}

// notSlack is a reason to wait: responses that are not Slack's. The time comes first, because the explanation
// may be so long that reports cut it off.
func notSlack(failure *slackout.Error, pause time.Duration) error {
	return fmt.Errorf("%s: next try at %s; %s", snapshot.NotSlack,
		time.Now().Add(pause).UTC().Format("15:04:05Z"), failure.Explanation)
}
