package lanes

import "time"

// Turn is one item's turn to be posted. One goroutine uses it, and ends it with Finish.
type Turn[T any] struct {
	Item T

	lanes     *Lanes[T]
	lane      *lane[T]
	workspace ticket
	channel   ticket
}

// Signal is a turn's evidence about Slack.
type Signal int

const (
	Nothing          Signal = iota // no post was made
	Posted                         // the post was made
	Rejected                       // Slack refuses this message for good, and takes others
	ChannelLimited                 // Slack limits the channel, so it can be reached
	ChannelFailing                 // the post failed, and the event itself may be the cause
	WorkspaceFailing               // Slack takes no posts
	ChannelPaused                  // another worker was told to wait, or probes the channel
	WorkspacePaused                // the same for all channels
)

// Result says how a turn ended, and when the item has its next one.
type Result struct {
	Signal  Signal
	AtLeast time.Duration // the gate that Signal closes stays closed for this, or for its backoff if longer
	Pace    time.Duration // delay of the lane's next turn
	Done    bool          // the item is removed
	After   time.Duration // delay of the item's next turn; zero puts the item back in its place
}

// Proof names the gates that a post has opened. A post that began before a gate closed does not open it.
type Proof struct {
	Channel   bool // the channel takes posts
	Workspace bool // Slack takes posts
}

// Finish ends the turn.
func (t *Turn[T]) Finish(r Result) (proof Proof) {
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	now := time.Now()
	proof = t.signal(r, now)
	queue, e := t.lane, t.lane.posting
	queue.posting, e.tried = nil, true
	switch {
	case !r.Signal.isPost():
	case e.at.IsZero():
		queue.freshInRow++
	default:
		queue.freshInRow = 0
	}
	if r.Signal == ChannelFailing {
		if !e.at.IsZero() {
			queue.retryAt = now.Add(t.lanes.backoff.Retries)
		}
		if e.failed.IsZero() {
			e.failed = now
		}
	}
	queue.interval = (3*queue.interval + now.Sub(queue.busySince)) / 4
	queue.busySince = now
	if r.Pace > 0 {
		queue.notBefore = now.Add(r.Pace)
	}
	switch {
	case r.Done:
		t.lanes.count(queue, -1, -e.item.Bytes)
	case r.After > 0:
		e.at = now.Add(r.After)
		queue.delay(e)
	case !e.at.IsZero():
		queue.delay(e)
	default:
		queue.insert(e)
	}
	t.lanes.announce()
	return proof
}

// BlamesChannel reports whether the channel fails if this turn ends with ChannelFailing. If not, the item is
// to blame as far as is known.
func (t *Turn[T]) BlamesChannel() bool {
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	return t.lane.blamed(time.Now())
}

// signal opens and closes the gates. mu is held.
func (t *Turn[T]) signal(r Result, now time.Time) (proof Proof) {
	channel, workspace := t.lane.gate, t.lanes.workspace
	bounds, first := t.lanes.backoff, t.lane.posting.failed.IsZero()
	switch r.Signal {
	case Posted:
		t.lane.accepted = now
		if first {
			t.lane.tally.Posted++
		}
		return Proof{channel.succeeded(t.channel), workspace.succeeded(t.workspace)}
	case Rejected:
		return Proof{channel.succeeded(t.channel), workspace.succeeded(t.workspace)}
	case ChannelLimited:
		channel.failed(t.channel, now, r.AtLeast, bounds.Max)
		workspace.succeeded(t.workspace)
	case ChannelFailing:
		if first {
			t.lane.tally.Failed++
		}
		if t.lane.blamed(now) {
			channel.failed(t.channel, now, r.AtLeast, bounds.MaxUnexplained)
		}
	case WorkspaceFailing:
		workspace.failed(t.workspace, now, r.AtLeast, bounds.Max)
	case ChannelPaused:
		channel.closeFor(t.channel, now, r.AtLeast)
	case WorkspacePaused:
		workspace.closeFor(t.workspace, now, r.AtLeast)
	}
	channel.release(t.channel)
	workspace.release(t.workspace)
	return Proof{}
}

// isPost reports whether a post was tried, whatever its result.
func (s Signal) isPost() bool {
	return s != Nothing && s != ChannelPaused && s != WorkspacePaused
}

// Tally counts the first posts of a lane's items that show whether its channel takes posts: neither those
// that Slack limited or rejected, nor those that failed because of the whole workspace. A retry says nothing
// about other items.
type Tally struct {
	Posted uint64
	Failed uint64
}

// Tally returns the lane's tally, without the turn's own post.
func (t *Turn[T]) Tally() Tally {
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	return t.lane.tally
}
