// Package status puts together what people ask about a running notifier: how full each limit is, who holds
// the slots, when there is room again, what was sent and dropped lately, and what replicas wait for. It reads
// only Redis, so that the status command, the page and every replica show the same, also about replicas that
// are gone.
//
// It knows what is asked (status.go, of one category explain.go), what of it comes first (summary.go,
// attention.go), whose settings count for it (settings.go), when there is room (forecast.go) and how it is
// shown as text (table.go, explain_text.go, and page.go for the page). It does not know Redis keys, who asks,
// or how the page looks.
package status

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/internal/steering"
	"notifier/internal/term"
)

// Limiter reports how full the limits are; see package ratelimit.
type Limiter interface {
	Recent(ctx context.Context, most int) (categories []string, entries int, err error)
	Peek(ctx context.Context, categories ...string) ([]ratelimit.Usage, error)
	Slots(ctx context.Context, most int, categories ...string) ([]ratelimit.Slot, error)
	Pauses(ctx context.Context) ([]ratelimit.Pause, error)
	Turn(ctx context.Context, channel string, pace ratelimit.Tier) (time.Duration, error)
	Reserves(ctx context.Context) ([]ratelimit.Reserve, error)
	Rooms(ctx context.Context, categories ...string) ([]ratelimit.Room, error)
}

// Stats reports what all replicas have done lately; see package stats.
type Stats interface {
	Hour(ctx context.Context) (stats.Hour, error)
	Replicas(ctx context.Context) ([]stats.Replica, error)
	Refuses(ctx context.Context) error
}

// Source reads a Status. It is about the settings that the running replicas have, and about those of whoever
// reads only where no replica shows any.
type Source struct {
	Limiter Limiter // with the settings of whoever reads
	Stats   Stats
	Own     Config // the same settings

	// LimiterFor makes a limiter that reads with other settings; nil: those of whoever reads are always used.
	LimiterFor func(limits ratelimit.Rules, dedupe time.Duration, instead ratelimit.Temporary) (Limiter, error)

	// Steering is what operators have asked for; nil: nothing.
	Steering Steering

	// This is what the worker that reads knows by itself; nil: no worker reads.
	This func() *This
}

// Status is the state of all replicas together, as JSON for scripts, of 64 KiB at most. Categories and groups
// have their names as outcome.CategoryName gives them.
type Status struct {
	Summary Summary   `json:"summary"`
	Time    time.Time `json:"time"` // by the clock of Redis
	Global  Scope     `json:"global"`
	// with a limit, of the 200 categories that are looked at; the fullest first, at most 50
	Groups     []Scope `json:"groups"`
	MoreGroups int     `json:"more_groups"` // how many of these were left out
	// the fullest first; of more than 100 those with the most drops, and the fullest of the busy ones
	Categories []Scope `json:"categories"`
	// how many were left out; of more than 1000 at most so many
	More int `json:"more_categories"`
	// what is kept of the global limit for whom, in alphabetical order
	Reserves []ratelimit.Reserve `json:"reserves"`
	// how many were left out, because there is no room for them
	MoreReserves int `json:"more_reserves"`
	// of the longest global window, the newest first; at most 1000, and 100 where there is no room for more
	Slots []ratelimit.Slot `json:"slots"`
	// how many further ones are taken: older ones, and in buckets
	MoreSlots int `json:"more_slots"`
	// of these, the ones that were not read: who holds them is not known
	Unread int `json:"-"`
	// the global limit is counted in buckets, so slots and holders are not known
	InBuckets bool `json:"slots_in_buckets"`
	// of the newest 1000 slots, those with the most first; at most 10
	Holders  []Holder  `json:"holders"`
	Others   int       `json:"more_holders"` // how many were left out
	Outcomes []Outcome `json:"outcomes_last_hour"`
	// Sources are who has caused the events of the last 50 to 60 minutes, by category, as far as publishers name
	// anybody: the source with the most refused events first, then what is counted without a name.
	Sources map[string][]stats.SourceCount `json:"sources"`
	// of how many categories they were left out, because there is no room for them
	MoreSources int `json:"more_sources"`
	// what is left of the longest pause that Slack asked for
	CooldownS float64 `json:"slack_cooldown_s"`
	Pauses    []Pause `json:"slack_pauses"` // all that are in force
	// events of all replicas that wait for something, each counted once
	Held int `json:"held"`
	// by channel; of those for which admitted events wait
	Unposted []Unposted      `json:"unposted"`
	Replicas []stats.Replica `json:"replicas"`
	// mutes and temporary limits that are in force; at most 50
	Steering     []steering.Order `json:"steering"`
	MoreSteering int              `json:"more_steering"` // how many were left out
	// how many were left out, because there is no room for them: ready ones first
	MoreReplicas int `json:"more_replicas"`
	Ready        int `json:"ready_replicas"` // of all of them
	// whose limits these are, and which replicas have others
	Settings Settings `json:"settings"`
	// of NATS, which can become full, as the replicas have last seen them
	Streams []Stream `json:"streams"`
	// what the worker that answers knows by itself; a command has none
	This *This `json:"this,omitempty"`
}

// Holder is how many slots a category holds.
type Holder struct {
	Category string `json:"category,omitempty"` // empty: no longer known
	Slots    int    `json:"slots"`
}

// Pause is one that Slack asked for.
type Pause struct {
	Channel string  `json:"channel,omitempty"` // empty: the whole workspace is paused
	LeftS   float64 `json:"left_s"`
	Text    string  `json:"text"` // for people: "#alerts: Slack asked to wait 12 s"
}

func newPause(pause ratelimit.Pause) Pause {
	return Pause{Channel: pause.Channel, LeftS: term.Seconds(pause.Left), Text: pause.String()}
}

// Outcome is how many events ended in one way in the last hour.
type Outcome struct {
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
	N       int64  `json:"n"`
}

// name is "dropped global", or "sent".
func (o Outcome) name() string { return strings.TrimSuffix(o.Outcome+" "+o.Reason, " ") }

// Read asks Redis. An error means that it is unavailable, or has something that notifier never writes.
func (s Source) Read(ctx context.Context) (Status, error) {
	of, err := s.look(ctx)
	if err != nil {
		return Status{}, err
	}
	hour, replicas := of.hour, of.replicas
	recent, entries, err := of.limiter.Recent(ctx, mostEntries)
	if err != nil {
		return Status{}, err
	}
	sums := hour.Sum()
	all := candidates(recent, sums)
	lookedAt := all[:min(len(all), mostLookedAt)]
	f, err := newForecaster(ctx, of, lookedAt...)
	if err != nil {
		return Status{}, err
	}
	slots, err := of.limiter.Slots(ctx, mostSlots, lookedAt...)
	if err != nil {
		return Status{}, err
	}
	status := Status{
		Time: hour.Now, Replicas: replicas, Outcomes: outcomes(sums), Unposted: UnpostedOf(replicas, hour.Now),
		Sources: sourcesOf(hour.Sources), Settings: of.shown, Streams: streamsOf(replicas), This: of.this,
	}
	status.setSteering(of.orders)
	status.setSlots(slots, f)
	status.setPauses(of.pauses)
	for i, replica := range replicas {
		replicas[i].Streams = nil // they are in Status.Streams
		replicas[i].Heartbeat.Settings = stats.Settings{}
		status.Held += replica.HeldEvents()
		if replica.Ready {
			status.Ready++
		}
	}
	unread := max(0, entries-mostEntries) // each of these entries can be a category
	status.setScopes(scopesOf(f), len(all)+unread)
	status.setReserves(f)
	status.Summary = view{status, redisOf(of.this, s.Stats.Refuses(ctx)), lastPosts(of.settings, hour)}.summary()
	status.fit(mostBytes)
	return status, nil
}

// lastPosts is when something was last posted to each channel. What names another channel than that of its
// category counts for that one.
func lastPosts(settings Config, hour stats.Hour) map[string]time.Time {
	posted := map[string]time.Time{}
	for category, at := range hour.LastSent {
		if lane := settings.laneOf(outcome.CategoryOf(category)); at.After(posted[lane]) {
			posted[lane] = at
		}
	}
	return posted
}

var errNotKnown = errors.New(
	"when the global limit has room is not known: what is left is kept for some categories, slots are counted in " +
		"buckets, or a temporary limit ends before",
)

// NextFree is how long it takes until the global limit has room for one event of a category without a
// reserve. Errors are as for Read; besides, only a lower bound may be known.
func (s Source) NextFree(ctx context.Context) (time.Duration, error) {
	of := running{limiter: s.Limiter}
	if s.Steering != nil {
		state, err := s.Steering.Read(ctx)
		if err != nil {
			return 0, err
		}
		of.hour.Now = state.Now
		of.ends = steering.Temporary(state.InForce(state.Now, steering.Limit)).Ends
	}
	f, err := newForecaster(ctx, of)
	if err != nil {
		return 0, err
	}
	free := f.forecast(nil, f.globalFor(""))
	switch {
	case free.Sends:
		return 0, nil
	case free.AtLeast || free.Left > 0:
		return 0, errNotKnown
	}
	return free.At.Sub(f.hour.Now), nil
}

// setSlots sets who holds the global slots. Where they are counted in buckets nobody knows: no ids are kept
// there.
func (s *Status) setSlots(slots []ratelimit.Slot, f forecaster) {
	for i := range slots {
		slots[i].Category = outcome.CategoryName(slots[i].Category)
	}
	s.Slots = slots
	s.Holders, s.Others = holders(slots)
	var longest ratelimit.Usage
	exact := false // some tier has neither a precision nor fixed windows, so each event is kept
	for _, usage := range f.global {
		if usage.Tier.Window > longest.Tier.Window {
			longest = usage
		}
		exact = exact || ratelimit.Limit{usage.Tier}.Exact()
	}
	s.Unread = max(0, longest.Used-len(slots))
	s.MoreSlots = s.Unread
	s.InBuckets = len(slots) == 0 && (s.MoreSlots > 0 || !exact)
}

// setSteering sets what operators have asked for.
func (s *Status) setSteering(orders []steering.Order) {
	s.Steering = append([]steering.Order{}, orders[:min(len(orders), mostSteering)]...)
	s.MoreSteering = len(orders) - len(s.Steering)
}

func (s *Status) setPauses(pauses []ratelimit.Pause) {
	s.Pauses = make([]Pause, len(pauses))
	for i, pause := range pauses {
		s.Pauses[i] = newPause(pause)
		s.CooldownS = max(s.CooldownS, term.Seconds(pause.Left))
	}
}

// setScopes sets the scopes that are shown; known is how many categories there are.
func (s *Status) setScopes(all scopes, known int) {
	groups, categories := all.lists()
	s.Global, s.Groups, s.Categories = all.global, choose(groups, mostGroups), choose(categories, mostCategories)
	s.MoreGroups = len(groups) - len(s.Groups)
	s.More = known - len(s.Categories)
	others := func(scope Scope) bool { return scope.Category == stats.OtherCategory }
	if slices.ContainsFunc(s.Categories, others) {
		s.More++
	}
}

func (s *Status) setReserves(f forecaster) {
	s.Reserves = make([]ratelimit.Reserve, len(f.reserves))
	for i, kept := range f.globalFor("").kept {
		s.Global.Tiers[i].Kept = kept
	}
	for i, reserve := range f.reserves {
		reserve.Category = outcome.CategoryName(reserve.Category)
		s.Reserves[i] = reserve
	}
}

// holders are the categories that hold the most slots, and how many further ones there are.
func holders(slots []ratelimit.Slot) (most []Holder, others int) {
	held := map[string]int{}
	for _, slot := range slots {
		held[slot.Category]++
	}
	all := make([]Holder, 0, len(held))
	for category, n := range held {
		all = append(all, Holder{Category: category, Slots: n})
	}
	slices.SortFunc(all, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(b.Slots, a.Slots), cmp.Compare(a.Category, b.Category))
	})
	most = all[:min(len(all), mostHolders)]
	return most, len(all) - len(most)
}

// outcomes adds up over the categories, in the order of outcome and reason.
func outcomes(counts []stats.Count) []Outcome {
	sums := map[Outcome]int64{}
	for _, count := range counts {
		sums[Outcome{Outcome: count.Outcome, Reason: count.Reason}] += count.N
	}
	list := []Outcome{}
	for outcome, n := range sums {
		outcome.N = n
		list = append(list, outcome)
	}
	slices.SortFunc(list, func(a, b Outcome) int {
		return cmp.Or(-cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Reason, b.Reason)) // sent, dropped, dead
	})
	return list
}
