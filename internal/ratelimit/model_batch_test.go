package ratelimit_test

import (
	"maps"
	"slices"

	"notifier/internal/ratelimit"
)

// decideBatch decides a batch in order. An admission that changes the form of a scope changes it before the whole batch, one
// scope at a time: all of it is then decided anew, and the form stays even if nothing is admitted after all. reformed is when
// that was done, by the name of the scope. It returns the model as it is then.
func (m *model) decideBatch(p replica, clock int64, batch []ratelimit.Request, reformed func(scope string) int64) (*model, []ratelimit.Decision) {
	for {
		tried := m.copy()
		tried.bucketed = m.bucketsUntil > m.now(clock)
		decisions := make([]ratelimit.Decision, len(batch))
		for i, request := range batch {
			decisions[i] = tried.decide(p, clock, request)
		}
		level, misfit := m.misfit(p, tried)
		if !misfit {
			for _, a := range tried.admissions[len(m.admissions):] { // by the last one somebody may use buckets
				tried.want(p, a)
			}
			return tried, decisions
		}
		m.reform(level, reformed(level.name), m.now(clock))
	}
}

// misfit is the first scope whose form the batch has changed, in the order in which events are charged.
func (m *model) misfit(p replica, tried *model) (level, bool) {
	for _, a := range tried.admissions[len(m.admissions):] {
		for _, level := range p.levels(a.request.Category) {
			if s := m.scope(level.name); len(s.charges) > 0 && s.buckets != tried.scope(level.name).buckets {
				return level, true
			}
		}
	}
	return level{}, false
}

// copy is a model of its own with the same in it.
func (m *model) copy() *model {
	other := *m
	other.sent, other.indexed = maps.Clone(m.sent), maps.Clone(m.indexed)
	copies := map[*admission]*admission{}
	other.admissions = slices.Clone(m.admissions)
	for i, a := range m.admissions {
		same := *a
		same.scopes = slices.Clone(a.scopes)
		other.admissions[i], copies[a] = &same, &same
	}
	other.scopes = map[string]*scope{}
	for name, s := range m.scopes {
		same := *s
		same.charges = slices.Clone(s.charges)
		for i, c := range s.charges {
			same.charges[i] = &charge{of: copies[c.of], time: c.time, began: c.began, cost: c.cost}
		}
		other.scopes[name] = &same
	}
	return &other
}
