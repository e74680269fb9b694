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
	// MostCategories bounds the categories of a minute, and those of the digest: publishers choose the names.
	MostCategories = 100

	// Other stands for the categories past the first MostCategories.
	Other = "_other"
)

// localMinutes is how many minutes of counts wait in memory while Redis is away: as many as are ever read.
const localMinutes = minutesOfHour

// Config of a Recorder.
type Config struct {
	Redis     redis.UniversalClient
	Namespace string // as for ratelimit.New
	Replica   string // names this replica among those that run; not empty

	// Heartbeat gives what Reader.Replicas tells of this replica. It is called at each flush, from one goroutine;
	// nil: this replica is not told of.
	Heartbeat func() Heartbeat

	// Limit gives the text, such as 10/30m, of the limit that refuses events of a category for a reason. With it the
	// drops are recorded for the digest; nil: the digest is off, and nobody would ever take them.
	Limit func(reason, category string) string

	Every time.Duration // between two flushes; 0: a second
	Log   *zap.Logger   // nil: none
}

// Recorder counts what becomes of events in this replica and adds it to the counts of all. It is safe for use by several
// goroutines.
type Recorder struct {
	config Config
	keys   Keys
	log    *zap.Logger
	flush  *redis.Script
	run    string       // names this run of the replica among all that ever were
	ahead  atomic.Int64 // microseconds by which the clock of Redis is ahead of ours

	mu        sync.Mutex
	minutes   map[int64]*minute
	latest    *minute // the one that Observe used last, or nil
	forgotten int64   // events whose counts were given up since the last flush; see localMinutes

	// Of the one goroutine that flushes.
	number    int64  // of the last batch that was made
	unsure    *batch // it has not been answered, or nil
	nextPrune time.Time
}

// minute is what was counted in one minute of the clock of Redis, and not flushed. Its tallies stay when they are
// flushed, so that counting on costs no memory.
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

// NewRecorder makes a Recorder over an open client; nothing reaches Redis before Run.
func NewRecorder(config Config) (*Recorder, error) {
	keys, err := NewKeys(config.Namespace)
	if err != nil {
		return nil, err
	}
	if config.Replica == "" {
		return nil, errors.New("a replica without a name, expected one that no other replica has")
	}
	if config.Every <= 0 {
		config.Every = time.Second
	}
	if config.Log == nil {
		config.Log = zap.NewNop()
	}
	return &Recorder{
		config: config, keys: keys, log: config.Log, flush: redis.NewScript(lua.Flush), run: rand.Text(),
		minutes: map[int64]*minute{},
	}, nil
}

// Observe counts one settled event: its outcome and reason, in the log's words and without a slash in them, its
// category, and when it was settled by this machine's clock. It only adds in memory and never blocks for long.
func (r *Recorder) Observe(became, reason, category string, at time.Time) {
	micros := at.UnixMicro() + r.ahead.Load()
	r.mu.Lock()
	r.minute(micros/microsPerMinute).tally(category).add(became, reason, micros)
	r.mu.Unlock()
}

const microsPerMinute = int64(time.Minute / time.Microsecond)

// minute finds or begins a minute; r.mu is held.
func (r *Recorder) minute(number int64) *minute {
	if r.latest != nil && r.latest.number == number {
		return r.latest
	}
	m := r.minutes[number]
	if m == nil {
		m = &minute{number: number, categories: map[string]*tally{}}
		r.minutes[number] = m
		if len(r.minutes) > localMinutes {
			m = r.forgetOldest(m)
		}
	}
	r.latest = m
	return m
}

// forgetOldest gives up the counts of the oldest minute. Where that is the one that is asked for, an event older than
// all that wait, its counts go to the oldest that stays.
func (r *Recorder) forgetOldest(asked *minute) *minute {
	oldest := r.oldest()
	delete(r.minutes, oldest.number)
	if oldest == asked {
		return r.oldest()
	}
	for _, t := range oldest.categories {
		r.forgotten += t.total()
	}
	r.forgotten += oldest.other.total()
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
	if len(m.categories) >= MostCategories {
		return &m.other
	}
	t := &tally{}
	m.categories[strings.Clone(category)] = t // the event's own text may be part of a large one
	return t
}

func (t *tally) add(became, reason string, micros int64) {
	if became == outcome.Sent && micros > t.sentAt {
		t.sentAt = micros
	}
	for i := range t.counts {
		if c := &t.counts[i]; c.outcome == became && c.reason == reason {
			c.n++
			return
		}
	}
	t.counts = append(t.counts, outcomeCount{outcome: became, reason: reason, n: 1})
}

func (t *tally) total() (n int64) {
	for _, c := range t.counts {
		n += c.n
	}
	return n
}
