package lanes

import "time"

// Turn is one item's turn to be posted. Its holder reports with one of Succeeded, ChannelFailed,
// WorkspaceFailed, PauseChannel and PauseWorkspace how the post has ended, and ends the turn with Done or
// Return. Only the first report counts; a turn that ends without one proves nothing about Slack. A turn is
// used by one goroutine.
type Turn[T any] struct {
	Item T

	lanes     *Lanes[T]
	lane      *lane[T]
	entry     *entry[T]
	workspace ticket
	channel   ticket
	reported  bool
}

// Proof is what an answered post proves: of the channel, of the workspace, that Slack takes posts. One from
// before a gate closed proves nothing about it.
type Proof struct{ Channel, Workspace bool }

// Succeeded reports that Slack has answered as it should: the post is made (posted), or Slack refuses it for
// good.
func (t *Turn[T]) Succeeded(posted bool) (proof Proof) {
	t.report(func(time.Time) {
		proof.Channel, proof.Workspace = t.lane.gate.succeeded(t.channel), t.lanes.workspace.succeeded(t.workspace)
		if posted {
			t.lane.tally.Posted++
		}
	})
	return proof
}

// ChannelFailed closes the channel's gate for atLeast or longer, and returns for how long it is closed now.
// answered: the failure is an answer about the channel, so the workspace as a whole is available.
func (t *Turn[T]) ChannelFailed(atLeast time.Duration, answered bool) (closed time.Duration) {
	t.report(func(now time.Time) {
		longest := t.lanes.backoff.Longest
		if !answered {
			longest = t.lanes.backoff.LongestUnexplained
		}
		closed = t.lane.gate.failed(t.channel, now, atLeast, longest)
		if answered {
			t.lanes.workspace.succeeded(t.workspace)
		} else {
			t.lane.tally.Failed++
			t.lanes.workspace.release(t.workspace)
		}
	})
	return closed
}

// WorkspaceFailed closes the gate of all channels for atLeast or longer, and returns for how long it is
// closed now.
func (t *Turn[T]) WorkspaceFailed(atLeast time.Duration) (closed time.Duration) {
	t.report(func(now time.Time) {
		closed = t.lanes.workspace.failed(t.workspace, now, atLeast, t.lanes.backoff.Longest)
		t.lane.gate.release(t.channel)
	})
	return closed
}

// PauseChannel closes the channel's gate for d, because another replica was asked to wait, or waits for a
// probe.
func (t *Turn[T]) PauseChannel(d time.Duration) {
	t.report(func(now time.Time) {
		t.lane.gate.closeFor(t.channel, now, d)
		t.lanes.workspace.release(t.workspace)
	})
}

// PauseWorkspace closes the gate of all channels for d. It may follow another report.
func (t *Turn[T]) PauseWorkspace(d time.Duration) {
	t.report(func(time.Time) { t.lane.gate.release(t.channel) })
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	t.lanes.workspace.closeFor(t.workspace, time.Now(), d)
	t.lanes.announce()
}

// Tally counts only the posts that show whether the lane's channel takes posts: not those that Slack has
// answered with a limit or refused for good, and not those that failed because of the whole workspace.
type Tally struct {
	Posted uint64
	Failed uint64 // and nothing says why; see ChannelFailed
}

// Tally is that of the lane until now.
func (t *Turn[T]) Tally() Tally {
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	return t.lane.tally
}

// Pace makes the lane wait for d, because its pace has no room. It is no report: it does not concern the
// gates.
func (t *Turn[T]) Pace(d time.Duration) {
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	if until := time.Now().Add(d); until.After(t.lane.notBefore) {
		t.lane.notBefore = until
	}
}

func (t *Turn[T]) report(change func(now time.Time)) {
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	if !t.reported {
		t.reported = true
		change(time.Now())
		t.lanes.announce()
	}
}

// release frees the gates for another probe if nothing was reported.
func (t *Turn[T]) release() {
	t.report(func(time.Time) {
		t.lane.gate.release(t.channel)
		t.lanes.workspace.release(t.workspace)
	})
}

// Done ends the turn and removes the item.
func (t *Turn[T]) Done() {
	t.release()
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	t.end()
	t.lanes.remove(t.lane, t.entry)
	t.lanes.announce()
}

// Return ends the turn and puts the item back into its lane: before the others, or if after is above 0 when
// that has passed.
func (t *Turn[T]) Return(after time.Duration) {
	t.release()
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	t.end()
	t.entry.tried = true
	if after > 0 {
		t.entry.at = time.Now().Add(after)
		t.lane.waiting = append(t.lane.waiting, t.entry)
	} else {
		t.lane.putBack(t.entry)
	}
	t.lanes.announce()
}

// end stops counting the turn; mu is held.
func (t *Turn[T]) end() {
	t.lane.running--
	t.lanes.running--
}
