package stats

import (
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"notifier/internal/outcome"
	"notifier/lua"
)

const (
	// MaxCategories bounds the categories of a minute, and those of the digest: publishers choose the names.
	MaxCategories = 100

	// OtherCategory replaces the categories past the first MaxCategories.
	OtherCategory = outcome.OtherCategories
)

// localMinutes is how many minutes of counts wait in memory while Redis is unavailable: as many as a Reader
// reads.
const localMinutes = minutesOfHour

// Config of a Recorder.
type Config struct {
	Redis     redis.UniversalClient
	Namespace string // as for ratelimit.New
	Replica   string // names this replica among those that run; not empty

	// Heartbeat returns what Reader.Replicas reports about this replica. It is called at each flush, from one
	// goroutine; nil: this replica is not reported.
	Heartbeat func() Heartbeat

	// Flushed is called after each flush with what it has brought back, from one goroutine; nil: nobody is
	// interested.
	Flushed func(Flushed)

	// Limit returns the text, such as 10/30m, of the limit that refuses events of a category for a reason. With
	// it the drops are recorded for the digest; nil: the digest is off, and nothing would ever remove them.
	Limit func(reason, category string) string

	Every time.Duration // between two flushes; 0: a second
	Log   *zap.Logger   // nil: none
}

// Recorder counts the outcomes of events in this replica and adds them to the counts of all replicas. It is
// safe for concurrent use.
type Recorder struct {
	config Config
	keys   Keys
	log    *zap.Logger
	flush  *redis.Script
	run    string       // unique to this run of the replica
	ahead  atomic.Int64 // microseconds by which the clock of Redis is ahead of ours

	trouble atomic.Pointer[Trouble] // of the last flush

	mu        sync.Mutex
	minutes   map[int64]*minute
	slots     map[int64]*slot // by tens of minutes since 1970; each has a minute in minutes
	latest    *minute         // the one that Observe used last, or nil
	discarded int64           // events whose counts were discarded since the last flush; see localMinutes

	// Used only by the goroutine that flushes.
	number      int64  // of the last batch that was made
	unconfirmed *batch // the one without a reply, or nil
	nextPrune   time.Time
}

// minute is what was counted in one minute, by the clock of Redis, and not flushed yet. A flush keeps the
// tallies, so that counting further events allocates nothing.
type minute struct {
	number     int64 // minutes since 1970
	categories map[string]*tally
	other      tally
}

// tally is what was counted of one category.
type tally struct {
	counts []outcomeCount // a handful: outcomes are a closed list
	sentAt int64          // microsecond of the last that was sent; 0: none since the last flush
}

type outcomeCount struct {
	outcome, reason string
	n               int64
}

// NewRecorder returns a Recorder that uses an open client; nothing is written to Redis before Run.
func NewRecorder(config Config) (*Recorder, error) {
	keys, err := NewKeys(config.Namespace)
	if err != nil {
		return nil, err
	}
	if config.Replica == "" {
		return nil, errors.New("the replica has no name, expected one that no other replica has")
	}
	if config.Every <= 0 {
		config.Every = time.Second
	}
	if config.Log == nil {
		config.Log = zap.NewNop()
	}
	return &Recorder{
		config: config, keys: keys, log: config.Log, flush: redis.NewScript(lua.Flush), run: rand.Text(),
		minutes: map[int64]*minute{}, slots: map[int64]*slot{},
	}, nil
}

// Observe counts n settled events that are alike: their outcome and reason in the words of package outcome,
// without a slash, their category, who has caused them (empty: not known), and when they were settled by this
// machine's clock. It only counts in memory and never blocks for long.
func (r *Recorder) Observe(became, reason, category, source string, n int, at time.Time) {
	micros := at.UnixMicro() + r.ahead.Load()
	name := outcome.CategoryName(category)
	r.mu.Lock()
	m := r.minute(micros / microsPerMinute)
	m.tally(name).add(became, reason, int64(n), micros)
	r.observeSource(m.number, became, reason, name, source, int64(n))
	r.mu.Unlock()
}

const microsPerMinute = int64(time.Minute / time.Microsecond)

// minute returns the minute with this number, and creates it if necessary; r.mu is held.
func (r *Recorder) minute(number int64) *minute {
	if r.latest != nil && r.latest.number == number {
		return r.latest
	}
	m := r.minutes[number]
	if m == nil {
		m = &minute{number: number, categories: map[string]*tally{}}
		r.minutes[number] = m
		if len(r.minutes) > localMinutes {
			m = r.discardOldest(m)
		}
	}
	r.latest = m
	return m
}

// discardOldest discards the counts of the oldest minute, and returns the minute to count in. If the oldest
// one is the one that was asked for, because an event is older than all minutes in memory, it is the oldest
// one that remains.
func (r *Recorder) discardOldest(asked *minute) *minute {
	oldest := r.oldest()
	delete(r.minutes, oldest.number)
	r.removeSlots()
	if oldest == asked {
		return r.oldest()
	}
	for _, t := range oldest.categories {
		r.discarded += t.total()
	}
	r.discarded += oldest.other.total()
	return asked
}

func (r *Recorder) oldest() *minute {
	var oldest *minute
	for _, m := range r.minutes {
		if oldest == nil || m.number < oldest.number {
			oldest = m
		}
	}
	return oldest
}

func (m *minute) tally(category string) *tally {
	if t := m.categories[category]; t != nil {
		return t
	}
	if len(m.categories) >= MaxCategories {
		return &m.other
	}
	t := &tally{}
	// the category may be a part of a larger string, which would stay in memory
	m.categories[strings.Clone(category)] = t
	return t
}

func (t *tally) add(became, reason string, n, micros int64) {
	if became == outcome.Sent && micros > t.sentAt {
		t.sentAt = micros
	}
	for i := range t.counts {
		if c := &t.counts[i]; c.outcome == became && c.reason == reason {
			c.n += n
			return
		}
	}
	t.counts = append(t.counts, outcomeCount{outcome: became, reason: reason, n: n})
}

func (t *tally) total() (n int64) {
	for _, c := range t.counts {
		n += c.n
	}
	return n
}
