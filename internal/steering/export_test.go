package steering

import "context"

// Poll polls once, as Run does every second.
func (f *Follower) Poll(ctx context.Context) { f.poll(ctx) }
