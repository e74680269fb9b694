package letters

import (
	"context"
	"fmt"
	"sync"
)

// readsAhead is how many letters Scan asks for at a time. With one, 50,000 letters take as many round trips.
const readsAhead = 32

// reading is a request for the first letter at or after the sequence from.
type reading struct {
	from   uint64
	done   chan struct{}
	letter *Letter // nil: there is none
	err    error
}

// Scan is Each for those who only look: it asks for many letters at a time, so that one which was deleted a
// moment ago may still be seen. do is called for one letter after the other, as Each does.
func (s *Stream) Scan(ctx context.Context, do func(*Letter) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var asked sync.WaitGroup
	defer asked.Wait()
	defer cancel()
	var queue []*reading
	for next, ask := s.first, s.first; next <= s.last; {
		for ; len(queue) < readsAhead && ask <= s.last; ask++ {
			r := &reading{from: ask, done: make(chan struct{})}
			queue = append(queue, r)
			asked.Go(func() {
				defer close(r.done)
				r.letter, r.err = s.read(ctx, r.from)
			})
		}
		r := queue[0]
		queue = queue[1:]
		<-r.done
		switch {
		case r.from < next:
			continue // it is in a gap: what it found has been seen
		case r.err != nil:
			return fmt.Errorf("stream %s: %w", s.Name(), r.err)
		case r.letter == nil || r.letter.Seq > s.last:
			return nil
		}
		if err := do(r.letter); err != nil {
			return err
		}
		next = r.letter.Seq + 1
		ask = max(ask, next)
	}
	return nil
}
