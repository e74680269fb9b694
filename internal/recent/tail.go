package recent

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"notifier/internal/snapshot"
)

// Bounds of what a Tail keeps and asks for.
const (
	tailFresh      = 2 * time.Second // many who ask cost one reading in this time
	tailTimeout    = 3 * time.Second
	tailOfEach     = 300  // outcomes that are kept of sent, dropped and dead, each
	tailPages      = 8    // that are read at once
	tailCategories = 16   // categories that are kept besides
	ofCategory     = 100  // outcomes of such a category, of sent, dropped and dead each
	readsPerSecond = 10   // of categories
	tailStart      = 8000 // messages that the first reading goes back

	// MostTail is how many outcomes a Tail returns at most.
	MostTail = 200
)

// errBusy is why a category is not read now.
var errBusy = errors.New("many categories are asked for at the same time")

// Tail serves the newest outcomes to any number of clients, who may ask for anything as often as they like: the stream is read
// only while somebody asks, and only what is new. It is safe for concurrent use.
type Tail struct {
	reader *Reader
	newest *snapshot.Snapshot[tailState]
	state  tailState // used by the snapshot's reading alone
	pace   *rate.Limiter

	mu         sync.Mutex
	categories []*categoryTail // the one that was asked for last is at the end
	readings   map[*reading]bool
}

// tailState is what is known of the end of the stream. What is in it is never changed.
type tailState struct {
	until   uint64
	newest  map[string][]Outcome // by outcome, the newest first
	skipped bool                 // there are older ones
}

type categoryTail struct {
	category string
	newest   *snapshot.Snapshot[[]Outcome]
}

// reading can be ended.
type reading struct{ cancel context.CancelCauseFunc }

// NewTail makes a tail. It reads nothing before it is asked.
func NewTail(reader *Reader) *Tail {
	t := &Tail{reader: reader, pace: rate.NewLimiter(readsPerSecond, readsPerSecond), readings: map[*reading]bool{}}
	t.newest = snapshot.New(tailFresh, tailTimeout, t.follow)
	return t
}

// List returns the newest outcomes that a filter selects, MostTail at most, at most a few seconds old. A caller waits no longer
// than its own context; ctx ends readings. Event ids are not searched for. The error is that of Reader.List.
func (t *Tail) List(caller, ctx context.Context, filter Filter) (Answer, error) {
	if filter.Limit <= 0 {
		filter.Limit = defaultList
	}
	filter.Limit = min(filter.Limit, MostTail)
	if oldest := time.Now().Add(-MaxAge); filter.Since.Before(oldest) {
		filter.Since = oldest
	}
	if filter.Category != "" {
		filter.Category = short(filter.Category, longestName)
		found, _, err := t.of(filter.Category).GetFor(caller, ctx)
		if err == nil {
			return filter.among(found), nil
		}
		if !errors.Is(err, errBusy) {
			return Answer{}, err
		}
	}
	state, _, err := t.newest.GetFor(caller, ctx)
	if err != nil {
		return Answer{}, err
	}
	var found []Outcome
	for _, newest := range state.newest {
		found = append(found, newest...)
	}
	answer := filter.among(found)
	answer.Partial = len(answer.Outcomes) < filter.Limit && (state.skipped || filter.Category != "")
	return answer, nil
}

// among selects from outcomes.
func (f Filter) among(found []Outcome) Answer {
	list := listing{filter: f}
	for _, o := range found {
		if f.selects(o) {
			list.answer.Outcomes = append(list.answer.Outcomes, o)
		}
	}
	list.orderAndCut()
	return list.answer
}

// Denied ends the readings under way, if the server has denied this subject to them, and reports whether that is so.
func (t *Tail) Denied(subject string, err error) bool {
	if subject != t.reader.place.readSubject() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for r := range t.readings {
		r.cancel(err)
	}
	return true
}

// begin makes a context that Denied ends.
func (t *Tail) begin(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	r := &reading{cancel}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readings[r] = true
	return ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.readings, r)
		cancel(nil)
	}
}

// of is what is known of one category.
func (t *Tail) of(category string) *snapshot.Snapshot[[]Outcome] {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.categories, func(c *categoryTail) bool { return c.category == category })
	if i >= 0 {
		c := t.categories[i]
		t.categories = append(slices.Delete(t.categories, i, i+1), c)
		return c.newest
	}
	if len(t.categories) >= tailCategories {
		t.categories = slices.Delete(t.categories, 0, 1)
	}
	c := &categoryTail{category: category, newest: snapshot.New(tailFresh, tailTimeout, func(ctx context.Context) ([]Outcome, error) {
		return t.readCategory(ctx, category)
	})}
	t.categories = append(t.categories, c)
	return c.newest
}

func (t *Tail) readCategory(ctx context.Context, category string) ([]Outcome, error) {
	if !t.pace.Allow() {
		return nil, errBusy
	}
	ctx, end := t.begin(ctx)
	defer end()
	answer, err := t.reader.List(ctx, Filter{Category: category, Limit: maxOfCategory})
	if err != nil {
		return nil, err
	}
	var kept []Outcome
	count := map[string]int{}
	for _, o := range answer.Outcomes {
		if count[o.Outcome]++; count[o.Outcome] <= ofCategory {
			kept = append(kept, o)
		}
	}
	return kept, nil
}

// follow reads what is new since the last reading.
func (t *Tail) follow(ctx context.Context) (tailState, error) {
	ctx, end := t.begin(ctx)
	defer end()
	state, err := t.next(ctx, t.state)
	if err != nil {
		state = tailState{}
	}
	t.state = state
	return state, err
}

func (t *Tail) next(ctx context.Context, state tailState) (tailState, error) {
	newest, err := t.reader.newest(ctx)
	if err != nil || newest == 0 {
		return tailState{}, err
	}
	if newest < state.until { // another stream
		state = tailState{}
	}
	if newest-state.until > tailStart {
		state.until, state.skipped = newest-tailStart, true
	}
	list := newListing(t.reader.place, Filter{})
	for range tailPages {
		p, err := t.reader.page(ctx, get{Seq: state.until + 1, Subject: t.reader.place.all()})
		if err != nil {
			return tailState{}, err
		}
		for _, m := range p.messages {
			list.add(m)
		}
		if p.until <= state.until {
			break
		}
		if state.until = p.until; !p.more {
			break
		}
	}
	return state.with(list.answer.Outcomes), nil
}

// with is the state with newer outcomes, the newest last.
func (s tailState) with(newer []Outcome) tailState {
	if len(newer) == 0 {
		return s
	}
	newest := map[string][]Outcome{}
	for i := len(newer) - 1; i >= 0; i-- {
		newest[newer[i].Outcome] = append(newest[newer[i].Outcome], newer[i])
	}
	for _, result := range outcomes {
		all := slices.Concat(newest[result], s.newest[result])
		if len(all) > tailOfEach {
			all, s.skipped = slices.Clone(all[:tailOfEach]), true
		}
		newest[result] = all
	}
	s.newest = newest
	return s
}
