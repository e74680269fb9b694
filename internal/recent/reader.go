package recent

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
)

// Bounds of one reading.
const (
	mostRead    = 50_000 // messages
	firstWindow = pageMessages
	windowPages = 8 // of a window; one that has more is read in parts
	clockSkew   = time.Minute
	defaultList = 100
)

// Filter selects outcomes. Its zero value selects the newest 100.
type Filter struct {
	Category string    // exactly; empty: all
	Outcome  string    // one of Outcomes; empty: all
	EventID  string    // exactly; empty: all
	Since    time.Time // settled then or later; zero: whenever
	Limit    int       // so many at most, the newest; 0: 100
}

// Answer is what was found.
type Answer struct {
	Outcomes []Outcome // the newest first
	Partial  bool      // there are older ones that were not looked at, apart from those beyond Limit
	Skipped  int       // messages that are no records
}

// Reader reads outcomes. It is safe for concurrent use, and needs to publish to $JS.API.DIRECT.GET.<stream> alone. A server that
// denies that says so on the connection and does not answer: whoever makes a Reader ends the context of its calls then, with the
// error as the cause. See DeniedSubject.
type Reader struct {
	connection *nats.Conn
	place      Place
}

// NewReader makes a reader. It asks nothing yet.
func NewReader(connection *nats.Conn, place Place) *Reader {
	return &Reader{connection: connection, place: place}
}

// Find returns what became of an event, the latest first; empty: nothing is known. An id counts within its category; an empty
// category means all, which costs more. The error is ErrNoStream where nothing was ever recorded.
func (r *Reader) Find(ctx context.Context, eventID, category string) ([]Outcome, error) {
	answer, err := r.List(ctx, Filter{EventID: eventID, Category: category})
	return answer.Outcomes, err
}

// List returns the newest outcomes that a filter selects. It makes a request for about a thousand messages, reads 50,000 at most,
// and skips what is no record. The error is ErrNoStream where nothing was ever recorded.
func (r *Reader) List(ctx context.Context, filter Filter) (Answer, error) {
	if filter.Limit <= 0 {
		filter.Limit = defaultList
	}
	filter.Category = short(filter.Category, longestName)
	list := newListing(r.place, filter)
	var err error
	if filter.Category != "" {
		err = r.forward(ctx, list)
	} else {
		err = r.backward(ctx, list)
	}
	return list.answer, err
}

// forward reads all outcomes of one category. There are a thousand at most, unless somebody else has made the stream.
func (r *Reader) forward(ctx context.Context, list *listing) error {
	from := get{Seq: 1, Subject: r.place.subject(list.filter.Category)}
	if !list.filter.Since.IsZero() {
		start := list.filter.Since.Add(-clockSkew).UTC()
		from.Seq, from.Start = 0, &start
	}
	for read := 0; ; {
		p, err := r.page(ctx, from)
		if err != nil {
			return err
		}
		for _, m := range p.messages {
			list.add(m)
		}
		list.orderAndCut()
		if !p.more || p.until == 0 || p.until < from.Seq {
			return nil
		}
		if read += len(p.messages); read >= mostRead {
			list.answer.Partial = true
			return nil
		}
		from.Seq, from.Start = p.until+1, nil
	}
}

// backward reads windows of sequences, the newest first. Where few messages are left in them, windows grow.
func (r *Reader) backward(ctx context.Context, list *listing) error {
	to, err := r.newest(ctx)
	if err != nil {
		return err
	}
	size, read := uint64(firstWindow), 0
	for to > 0 && !list.done() {
		if read >= mostRead {
			list.answer.Partial = true
			return nil
		}
		from := uint64(1)
		if to > size {
			from = to - size + 1
		}
		messages, whole, err := r.window(ctx, from, to)
		if err != nil {
			return err
		}
		read += len(messages)
		if !whole {
			size = max(firstWindow, size/4)
			continue
		}
		for i := len(messages) - 1; i >= 0; i-- {
			list.add(messages[i])
		}
		if uint64(len(messages)) < size/8 {
			size *= 4
		}
		to = from - 1
	}
	list.orderAndCut()
	return nil
}

// window returns the messages of a range of sequences; whole is false if there are too many of them to be read at once.
func (r *Reader) window(ctx context.Context, from, to uint64) (messages []message, whole bool, err error) {
	for range windowPages {
		p, err := r.page(ctx, get{Seq: from, Subject: r.place.all()})
		if err != nil {
			return nil, false, err
		}
		for _, m := range p.messages {
			if m.seq > to {
				return messages, true, nil
			}
			messages = append(messages, m)
		}
		if !p.more || p.until < from || p.until >= to {
			return messages, true, nil
		}
		from = p.until + 1
	}
	return messages, false, nil
}

// listing collects outcomes.
type listing struct {
	place  Place
	filter Filter
	id     string // as a record has it
	needle []byte // the id as it stands in the JSON of a record; nil: any
	old    bool   // what was stored before Since has been reached
	answer Answer
}

func newListing(place Place, filter Filter) *listing {
	l := &listing{place: place, filter: filter}
	if filter.EventID != "" {
		l.id = shortID(filter.EventID)
		l.needle, _ = json.Marshal(l.id) // a string can always be written
	}
	return l
}

// add adds a message, if it is a record and the filter selects it.
func (l *listing) add(m message) {
	f := l.filter
	if !f.Since.IsZero() && !m.stored.IsZero() && m.stored.Before(f.Since.Add(-clockSkew)) {
		l.old = true
		return
	}
	if l.needle != nil && !bytes.Contains(m.data, l.needle) {
		return // most are not looked for, and reading JSON costs
	}
	o, ours := l.place.decode(m.subject, m.data)
	if !ours {
		l.answer.Skipped++
		return
	}
	o.Seq = m.seq
	if f.selects(o) && (l.needle == nil || o.EventID == l.id) {
		l.answer.Outcomes = append(l.answer.Outcomes, o)
	}
}

// selects reports whether a filter selects an outcome, its event id aside.
func (f Filter) selects(o Outcome) bool {
	return (f.Category == "" || f.Category == o.Category) && (f.Outcome == "" || f.Outcome == o.Outcome) && !o.Time.Before(f.Since)
}

// done reports whether nothing older is needed.
func (l *listing) done() bool { return l.old || len(l.answer.Outcomes) >= l.filter.Limit }

// orderAndCut keeps the newest outcomes, the newest first.
func (l *listing) orderAndCut() {
	slices.SortFunc(l.answer.Outcomes, func(a, b Outcome) int { return int(int64(b.Seq) - int64(a.Seq)) })
	if len(l.answer.Outcomes) > l.filter.Limit {
		l.answer.Outcomes = slices.Clone(l.answer.Outcomes[:l.filter.Limit])
	}
}
