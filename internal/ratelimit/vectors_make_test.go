package ratelimit_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"notifier/internal/ratelimit"
)

// theme is a kind of history. If a field is empty, its default applies.
type theme struct {
	title      string
	rules      []vectorRules // one caller each
	calls      string        // letters, each equally likely; see step
	categories string        // default: a
	sources    string        // default: none
	costs      []int         // default: 1
	dedupe     string        // default: 24h
	back       time.Duration // the clock is set back by half of this up to all of it
}

const usualCalls = "aaaaabbnsrd"

var themes = []theme{
	{title: "one tier", rules: []vectorRules{{Global: "100/30m", Category: "3/10s"}}},
	{title: "several tiers", categories: "a b",
		rules: []vectorRules{{Global: "6/1m+3/2s", Category: "4/1m+2/5s"}}},
	{title: "tiers with equal waits", categories: "a a.x b",
		rules: []vectorRules{{Global: "2/30s+3/20s", Category: "2/30s+1/10s", Group: "2/30s"}}},
	{title: "limits of categories and patterns", categories: "a a.x b", calls: "aaaaabsd",
		rules: []vectorRules{
			{Global: "6/20s", Category: "1/5s", Overrides: map[string]string{"a.>": "2/10s", "b": "3/40s"}},
		}},
	{title: "fixed windows", categories: "a b",
		rules: []vectorRules{{Global: "4/1h:fixed", Category: "2/10s:fixed"}}},
	{title: "fixed and rolling tiers",
		rules: []vectorRules{{Global: "100/30m", Category: "4/1m:fixed+2/10s"}}},
	{title: "buckets", categories: "a b", calls: "aaaaarrd",
		rules: []vectorRules{{Global: "5/1m:8s", Category: "3/20s:3s"}}},
	{title: "buckets and fixed tiers", costs: []int{1, 2}, calls: "aaaaabrd",
		rules: []vectorRules{{Global: "100/30m", Category: "6/1m:5s+4/20s:fixed"}}},
	{title: "buckets in the global limit", categories: "a a.x b", calls: "aaaaabsr",
		rules: []vectorRules{{Global: "5/30s:7s", Category: "2/20s"}}},
	{title: "groups", categories: "b a.x a.y",
		rules: []vectorRules{{Global: "100/30m", Category: "2/10s", Group: "3/20s"}}},
	{title: "limits of groups", categories: "b a.x a.y", costs: []int{1, 2}, calls: "aaaaabr",
		rules: []vectorRules{
			{Global: "9/1m", Category: "5/10s", GroupOverrides: map[string]string{"a": "4/20s+3/5s"}},
		}},
	{title: "a reservation", categories: "a b", costs: []int{1, 1, 2, 4}, calls: "aaaaaaarsdd",
		rules: []vectorRules{{Global: "5/30s", Category: "4/20s", Reserve: map[string]int{"b": 2}}}},
	{title: "reservations", categories: "a b c", calls: "aaaaaaabrdd", rules: []vectorRules{
		{Global: "6/1m+2/5s", Category: "5/10s", Group: "5/20s", Reserve: map[string]int{"b": 2, "c": 3}},
	}},
	{title: "costs", categories: "a b", costs: []int{1, 2, 3, 5},
		rules: []vectorRules{{Global: "7/1m", Category: "5/30s+4/5s"}}},
	{title: "costs in buckets", categories: "a b", costs: []int{9, 20, 51}, calls: "aaaaard",
		rules: []vectorRules{{Global: "100/1m:6s", Category: "80/30s:5s"}}},
	{title: "costs above 1000", costs: []int{1001, 600, 1}, categories: "a b", calls: "aaaabsrd",
		rules: []vectorRules{
			{Global: "5000/1m:5s", Category: "5000/1m:5s", Overrides: map[string]string{"a": "3000/30s"}},
		}},
	{title: "duplicates", dedupe: "5s", calls: "aaaaabssf",
		rules: []vectorRules{{Global: "100/30m", Category: "4/1m"}}},
	{title: "duplicates after the window", dedupe: "1m", calls: "aaaaabssf",
		rules: []vectorRules{{Global: "100/30m", Category: "4/5s"}}},
	{title: "sources", sources: "x y", categories: "a b",
		rules: []vectorRules{{Global: "100/30m", Category: "4/5s"}}},
	{title: "decided again", categories: "a.x a.y", costs: []int{1, 2}, calls: "aaaabbnnrf",
		rules: []vectorRules{{Global: "4/20s", Category: "3/5s", Group: "4/5s"}}},
	{title: "decided again with slots in one scope", calls: "aaaabbnnsr",
		rules: []vectorRules{{Global: "2/20s", Category: "1/5s"}}},
	{title: "posts", costs: []int{1, 2}, calls: "aaabbbbnnnsf",
		rules: []vectorRules{{Global: "3/20s", Category: "2/5s"}}},
	{title: "posts under fixed windows", costs: []int{1, 2}, calls: "aaabbbnnsd",
		rules: []vectorRules{{Global: "4/20s", Category: "3/15s:fixed+3/5s"}}},
	{title: "posts and buckets", costs: []int{1, 2}, calls: "aaaabbbnnsr",
		rules: []vectorRules{{Global: "5/20s:4s", Category: "3/8s"}}},
	{title: "refunds", categories: "a.x a.y", costs: []int{1, 2}, calls: "aaaabbnrrrff",
		rules: []vectorRules{{Global: "5/30s", Category: "3/10s", Group: "4/20s"}}},
	{title: "the clock is set back", back: 30 * time.Second,
		rules: []vectorRules{{Global: "5/30s+4/20s:fixed", Category: "3/10s"}}},
	{title: "the clock is set back during posts", back: 5 * time.Second, calls: "aabbbbns",
		rules: []vectorRules{{Global: "100/30m", Category: "3/20s"}}},
	{title: "the clock is set back by more than a day", back: 50 * time.Hour, calls: "aaaaabbnsd",
		rules: []vectorRules{{Global: "4/30s", Category: "2/10s"}}},
	{title: "callers with different limits", categories: "a.x a.y", costs: []int{1, 2}, rules: []vectorRules{
		{Global: "5/20s", Category: "3/20s"}, {Global: "7/20s", Category: "3/20s:4s", Group: "4/20s"},
	}},
	{title: "callers with buckets and with fixed windows", calls: "aaaaard", rules: []vectorRules{
		{Global: "5/20s:fixed", Category: "3/20s:8s"}, {Global: "4/20s:8s", Category: "2/20s:fixed"},
	}},
}

const (
	vectorsPerTheme   = 7
	vectorCandidates  = 40
	vectorSteps       = 8
	vectorLease       = 3_000_000
	firstVectorStarts = 4_102_444_800_123_457 // in 2100; see clocked
)

// makeVectors plays random histories against the model. The seed is fixed, so they change only with the model
// and the themes. From each group of candidates it keeps the history with the most replies of kinds that are
// still rare.
func makeVectors(t *testing.T) vectorFile {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	file := vectorFile{Lease: vectorLease, Events: map[string]vectorEvent{}}
	shown := map[string]int{}
	for _, theme := range themes {
		for n := range vectorsPerTheme {
			var best *vectorMaker
			highest := 0.0
			for range vectorCandidates {
				m := newVectorMaker(t, theme, random)
				m.play()
				news := 0.0
				for _, what := range m.shown {
					news += 1 / float64(1+shown[what]*shown[what])
				}
				if news > highest {
					best, highest = m, news
				}
			}
			for _, what := range best.shown {
				shown[what]++
			}
			best.history.Title = fmt.Sprintf("%s, %d", theme.title, n+1)
			file.Histories = append(file.Histories, best.history)
			maps.Copy(file.Events, best.Events)
		}
	}
	return file
}

// vectorMaker makes one history.
type vectorMaker struct {
	*rand.Rand
	vectorFile // only the events
	t          *testing.T
	theme      theme
	history    vector
	replicas   []replica
	model      *model
	clock      int64
	earliest   int64    // the lowest clock so far
	lifetime   int64    // of records
	windows    []int64  // short enough for a history to outlast
	waits      []int64  // from replies
	names      []string // of events, in order
	posts      int
	shown      []string // kinds of replies; see makeVectors
	last       map[string]string
}

func newVectorMaker(t *testing.T, theme theme, random *rand.Rand) *vectorMaker {
	theme.calls, theme.categories = cmp.Or(theme.calls, usualCalls), cmp.Or(theme.categories, "a")
	theme.dedupe, theme.costs = cmp.Or(theme.dedupe, "24h"), append(theme.costs, 1)[:max(1, len(theme.costs))]
	start := firstVectorStarts + random.Int64N(time.Hour.Microseconds())
	m := &vectorMaker{
		Rand: random, vectorFile: vectorFile{Events: map[string]vectorEvent{}}, t: t, theme: theme,
		history: vector{Start: start, Dedupe: theme.dedupe, Rules: theme.rules},
		model:   newModel(func() int64 { return 0 }),
		clock:   start, earliest: start, last: map[string]string{},
	}
	for i, rules := range theme.rules {
		by := newReplica(rules.parse(), mustParseDuration(t, theme.dedupe))
		by.number, m.lifetime = i, by.remembers()
		m.replicas = append(m.replicas, by)
		for _, category := range strings.Fields(theme.categories) {
			for _, level := range by.levels(category) {
				for _, tier := range level.limit {
					if tier.Window <= time.Minute {
						m.windows = append(m.windows, tier.Window.Microseconds())
					}
				}
			}
		}
	}
	return m
}

func pick[T any](m *vectorMaker, values []T) T { return values[m.IntN(len(values))] }

func (m *vectorMaker) play() {
	for range vectorSteps {
		m.wait()
		m.step(m.theme.calls[m.IntN(len(m.theme.calls))])
	}
	m.step('p')
}

// wait lets time pass, often until just before or after a reply changes. A history is shorter than the
// lifetime of records, so none expires.
func (m *vectorMaker) wait() {
	to, back := m.clock, m.theme.back.Microseconds()
	switch choice := m.IntN(8); {
	case choice < 2 && len(m.waits) > 0:
		to += m.waits[len(m.waits)-1] + m.Int64N(3) - 1
	case choice < 4 && len(m.model.admissions) > 0: // until its slots leave a window
		to = pick(m, m.model.admissions).moved + pick(m, m.windows) + m.Int64N(3) - 1
	case choice == 4:
		to += m.Int64N(pick(m, m.windows) / 2)
	case choice == 5:
		to += m.Int64N(5)
	case choice > 5 && back > 0:
		to -= back/2 + m.Int64N(back/2)
	}
	if (to >= m.clock || back > 0) && to < m.earliest+m.lifetime {
		m.clock, m.earliest = to, min(m.earliest, to)
	}
}

// step makes the call that a letter stands for and appends it with the reply of the model.
func (m *vectorMaker) step(letter byte) {
	s := vectorStep{At: m.clock - m.history.Start, Rules: m.IntN(len(m.replicas))}
	by := m.replicas[s.Rules]
	if len(m.names) == 0 {
		letter = 'a'
	}
	var request ratelimit.Request
	var a *admission // in flight for the request
	event, last := "", ""
	if len(m.names) > 0 {
		event = m.postable()
		request = m.Events[event].request()
		a = m.model.inFlight(request)
		if any := m.model.anyDelivery(request); any != nil {
			last = cmp.Or(any.post, any.failed)
		}
	}
	switch letter {
	case 'a':
		for range 1 + m.IntN(2)*m.IntN(2)*m.IntN(5) {
			s.Admit = append(s.Admit, m.event())
		}
		s.Lag = m.model.now(m.clock) - m.clock
		s.Decisions = vectorDecisions(m.model.decideBatch(by, m.clock, m.requests(s.Admit)))
	case 'd':
		s.DryRun, s.Cost = pick(m, strings.Fields(m.theme.categories)), pick(m, m.theme.costs)
		wanted := []ratelimit.Request{{Category: s.DryRun, Cost: s.Cost}}
		s.Decisions = vectorDecisions(m.model.copy().decideBatch(by, m.clock, wanted))
	case 'b':
		s.Begin = event
		m.begin(by, request, a, &s)
	case 'n':
		s.Answered, s.Post = event, cmp.Or(last, "p1")
		s.Answer = pick(m, []string{answerPosted, answerFailed, answerFailed, answerUnclear})
		if a != nil && a.post == s.Post {
			m.model.answered(by, a, s.Answer == answerFailed, m.moves(by, a))
		}
	case 's':
		s.Sent = event
		m.model.markSent(by, request, m.model.latest(m.clock), m.moves(by, m.model.inFlight(request)))
	case 'r', 'f':
		if m.IntN(4) > 0 {
			s.Known = last
		}
		ended := m.model.refundable(request, s.Known)
		released := ended != nil
		s.Released = &released
		if letter == 'r' {
			s.Refund = event
		} else {
			s.Forfeit = event
		}
		switch {
		case released && letter == 'r':
			m.model.refund(ended)
		case released:
			ended.inFlight = false
		}
	case 'p':
		m.peek(by, &s)
	}
	m.history.Steps = append(m.history.Steps, s)
	m.note(letter, s)
}

// moves returns the time to which a call moves the slots of an event, or 0 if it does not move them.
func (m *vectorMaker) moves(by replica, a *admission) int64 {
	if at := m.model.latest(m.clock); a != nil && m.model.stillCounts(by, a, at) {
		return at
	}
	return 0
}

func (m *vectorMaker) begin(by replica, request ratelimit.Request, a *admission, s *vectorStep) {
	m.posts++
	s.Post = fmt.Sprint("p", m.posts)
	if a == nil {
		s.Permit.Status = "not in flight"
		return
	}
	if m.IntN(4) > 0 {
		s.Known = cmp.Or(a.post, a.failed)
	}
	if a.post != "" && m.IntN(6) == 0 {
		s.Post, s.Known = a.post, "" // the reply was lost, and the call is repeated
	}
	left := a.begun + vectorLease - m.clock
	leased := left > 0 && a.begun <= m.clock
	repeated := a.post == s.Post && leased
	switch {
	case a.post != "" && a.post != s.Known && leased && !repeated:
		s.Permit = vectorPermit{Status: "leased", Wait: left}
	case a.post != "" && a.post != s.Known && !repeated:
		s.Permit = vectorPermit{Status: "last post unknown", Posts: a.posts, LastPost: a.post}
	case m.moves(by, a) == 0:
		s.Permit.Status = "not in flight"
	default:
		m.model.begin(by, request, m.clock, m.model.latest(m.clock), s.Post)
		s.Permit = vectorPermit{Status: "granted", Posts: a.posts}
	}
}

// peek reads the usage in the scopes of all events.
func (m *vectorMaker) peek(by replica, s *vectorStep) {
	b := &batch{model: m.model, by: by, clock: m.clock, now: m.model.latest(m.clock)}
	var levels []level
	for _, name := range m.names {
		category := m.Events[name].Category
		if slices.Contains(s.Peek, category) {
			continue
		}
		s.Peek = append(s.Peek, category)
		for _, l := range by.levels(category) {
			if !slices.ContainsFunc(levels, func(other level) bool { return other.name == l.name }) {
				levels = append(levels, l)
			}
		}
	}
	slices.SortStableFunc(levels, func(a, b level) int { return cmp.Compare(a.verdict, b.verdict) })
	for _, l := range levels {
		for _, tier := range l.limit {
			usage := vectorUsage{Scope: l.name, Tier: tier.String(), Used: b.used(l.name, tier)}
			if usage.Used >= tier.Count {
				usage.FreeIn, usage.AtLeast = b.frees(l, tier, usage.Used-tier.Count+1)
				usage.FreeIn -= m.clock
			}
			if usage.Used > 0 {
				s.Usages = append(s.Usages, usage)
			}
		}
	}
}

// event returns the name of an event to admit: a new one, a known one, or a known one in another stream
// message.
func (m *vectorMaker) event() string {
	if len(m.names) > 0 && m.IntN(5) < 2 {
		e := m.Events[pick(m, m.names)]
		if m.IntN(3) == 0 {
			e.Delivery = "m2"
		}
		return m.add(e)
	}
	n := len(m.names) + 1
	e := vectorEvent{Category: pick(m, strings.Fields(m.theme.categories)), Delivery: "m1"}
	if sources := strings.Fields(m.theme.sources); sources != nil {
		n, e.Source = 1+m.IntN(2), pick(m, append(sources, ""))
	}
	e.ID, e.Cost = fmt.Sprint("e", n), m.theme.costs[n%len(m.theme.costs)]
	return m.add(e)
}

func (m *vectorMaker) add(e vectorEvent) string {
	name := e.Category + ":" + e.ID
	if e.Source != "" {
		name += " from " + e.Source
	}
	if e.Cost > 1 {
		name += fmt.Sprint(" costs ", e.Cost)
	}
	if e.Delivery != "m1" {
		name += " in " + e.Delivery
	}
	if _, found := m.Events[name]; !found {
		m.names = append(m.names, name)
		m.Events[name] = e
	}
	return name
}

// postable returns the name of an event, usually one that is in flight for this stream message or another.
func (m *vectorMaker) postable() string {
	inFlight := slices.DeleteFunc(slices.Clone(m.names), func(name string) bool {
		return m.model.anyDelivery(m.Events[name].request()) == nil
	})
	if len(inFlight) == 0 || m.IntN(8) == 0 {
		return pick(m, m.names)
	}
	return pick(m, inFlight)
}

// event returns the name of the event of a call about a single one.
func (s vectorStep) event() string { return cmp.Or(s.Begin, s.Answered, s.Sent, s.Refund, s.Forfeit) }

var jsonNumber = regexp.MustCompile(`:\d+`)

// note records the kinds of a step's replies, each alone and after the previous one for the same event. It
// also collects the waits.
func (m *vectorMaker) note(letter byte, s vectorStep) {
	note := func(name string, reply any) {
		what := string(letter) + s.Answer + jsonNumber.ReplaceAllString(string(mustMarshal(m.t, reply)), "")
		event, _, _ := strings.Cut(name, " in ")
		for _, what := range []string{what, m.last[event] + ", " + what} {
			if !slices.Contains(m.shown, what) {
				m.shown = append(m.shown, what)
			}
		}
		m.last[event] = what
	}
	for i, decision := range s.Decisions {
		name := "dry run"
		if s.Admit != nil {
			name = s.Admit[i]
		}
		note(name, decision)
		if decision.Wait > 0 {
			m.waits = append(m.waits, decision.Wait)
		}
	}
	if s.Permit.Wait > 0 {
		m.waits = append(m.waits, s.Permit.Wait)
	}
	for _, usage := range s.Usages {
		note("peek", usage)
	}
	if event := s.event(); event != "" {
		note(event, s.vectorReply)
	}
}
