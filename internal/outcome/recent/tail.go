package recent

import (
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"

	"notifier/internal/status/snapshot"
)

const (
	tailFresh      = 2 * time.Second // all who ask within this time share one reading
	tailTimeout    = answerTimeout + time.Second
	tailRead       = 8 * pageMessages
	readsPerSecond = 10 // of one category each
	readsAtOnce    = 4
	turnTimeout    = 3 * time.Second

	// MostTail is how many outcomes a Tail returns at most.
	MostTail = 200
)

var errBusy = errors.New("too many categories are asked for at the same time; try again")

// Tail reads the newest outcomes for any number of clients, who may ask for anything as often as they like.
// It is safe for concurrent use.
type Tail struct {
	reader  *Reader
	newest  map[string]*snapshot.Snapshot[Answer] // of all categories, by outcome; empty: all outcomes
	pace    *rate.Limiter                         // of readings of one category, which clients choose
	reading chan struct{}                         // has room for readsAtOnce of them
}

// NewTail makes a tail. It reads nothing before it is asked.
func NewTail(reader *Reader) *Tail {
	t := &Tail{
		reader:  reader,
		newest:  map[string]*snapshot.Snapshot[Answer]{},
		pace:    rate.NewLimiter(readsPerSecond, readsPerSecond),
		reading: make(chan struct{}, readsAtOnce),
	}
	for _, result := range append(Outcomes(), "") {
		filter := Filter{Outcome: result, Limit: MostTail}
		t.newest[result] = snapshot.New(tailFresh, tailTimeout, func(ctx context.Context) (Answer, error) {
			return reader.list(ctx, filter, tailRead)
		})
	}
	return t
}

// List returns the newest outcomes that a filter selects by category and outcome. They are MostTail at most,
// and at most a few seconds old. It returns when the caller's context ends; ctx ends what callers share. The
// error is that of Reader.List, or that too many categories are asked for.
func (t *Tail) List(caller, ctx context.Context, filter Filter) (answer Answer, err error) {
	filter.Limit = min(filter.Limit, MostTail)
	shared := t.newest[filter.Outcome]
	if filter.Category != "" || shared == nil {
		return t.read(caller, filter)
	}
	answer, _, err = shared.GetFor(caller, ctx)
	if filter.Limit > 0 && len(answer.Outcomes) >= filter.Limit {
		answer = Answer{Outcomes: answer.Outcomes[:filter.Limit]}
	}
	return answer, err
}

// read reads for one caller alone, when it is its turn.
func (t *Tail) read(ctx context.Context, filter Filter) (Answer, error) {
	waiting, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	if t.pace.Wait(waiting) != nil {
		return Answer{}, errBusy
	}
	select {
	case t.reading <- struct{}{}:
	case <-waiting.Done():
		return Answer{}, errBusy
	}
	defer func() { <-t.reading }()
	return t.reader.list(ctx, filter, tailRead)
}
