package ratelimit

import (
	"slices"
	"strconv"
)

// ruleNumbers are the rules as admit.lua numbers them, from 1: the global limit, that of all categories, the overrides, and
// those of groups. It is the same in every call.
type ruleNumbers struct {
	overrides map[string]string // by pattern
	groups    map[string]string // by group
	group     string            // of groups without an override; empty: they have no limit
}

const (
	globalRule   = "1"
	categoryRule = "2"
)

// numberRules returns the rules as admit.lua takes them, and their numbers.
func numberRules(rules Rules) (arguments []any, numbers ruleNumbers) {
	numbers = ruleNumbers{overrides: map[string]string{}, groups: map[string]string{}}
	limits := []Limit{rules.Global, rules.Category}
	next := func(limit Limit) string {
		limits = append(limits, limit)
		return strconv.Itoa(len(limits))
	}
	for pattern, limit := range rules.Overrides.All() {
		numbers.overrides[pattern] = next(limit)
	}
	for group, limit := range rules.GroupOverrides {
		numbers.groups[group] = next(limit)
	}
	if len(rules.Group) > 0 {
		numbers.group = next(rules.Group)
	}
	arguments = append(arguments, strconv.Itoa(len(limits)))
	for _, limit := range limits {
		arguments = appendRule(arguments, limit)
	}
	return arguments, numbers
}

// appendRule appends a limit as admit.lua expects it: the numbers of tiers and of lengths of buckets, then these.
func appendRule(arguments []any, limit Limit) []any {
	grains := limit.grains()
	arguments = append(arguments, strconv.Itoa(len(limit)), strconv.Itoa(len(grains)))
	arguments = appendTiers(arguments, limit)
	for _, grain := range grains {
		arguments = append(arguments, micros(grain))
	}
	return arguments
}

func appendTiers(arguments []any, limit Limit) []any {
	for _, tier := range limit {
		arguments = append(arguments, strconv.Itoa(tier.Count), micros(tier.Window), flag(tier.Fixed))
	}
	return arguments
}

// ofCategory is the number of a category's rule.
func (n ruleNumbers) ofCategory(rules Rules, category string) string {
	if _, pattern, found := rules.Overrides.Find(category); found {
		return n.overrides[pattern]
	}
	return categoryRule
}

// ofGroup is the number of a group's rule; empty: it has none.
func (n ruleNumbers) ofGroup(group string) string {
	if number, found := n.groups[group]; found {
		return number
	}
	return n.group
}

// scope is one of the scopes of a call.
type scope struct {
	outcome Outcome // what a refusal by it is: Global, Group or Category
	limit   Limit
	stored  Limit  // the limit as the scripts are given it, see plan
	key     string // of its exact form
}

// question is one call of admit.lua: what it is given, and what its reply refers to.
type question struct {
	plan      *plan
	keyNames  []string
	arguments []any
	scopes    []scope // the n-th is number n+1 to the script
	origins   batchOrigins
}

// question returns the call for a batch. Texts are passed by reference: an argument is an interface, which would cost each of
// them an allocation.
func (l *Limiter) question(batch []Request) question {
	p := l.plan.Load()
	q := question{
		plan:      p,
		keyNames:  []string{l.keys.register(), l.keys.inFlight(), l.keys.sent()},
		arguments: make([]any, len(p.fixed), len(p.fixed)+5*len(batch)+8),
	}
	copy(q.arguments, p.fixed)
	q.addScope(l, scope{Global, p.rules.Global, p.stored.Global, l.keys.global()})

	// Each distinct category is one scope, and so is each distinct group. The events refer to the categories.
	q.origins = originsOf(batch)
	groups := map[string]string{}
	numberOf := make(map[string]string, len(q.origins.categories))
	for _, o := range q.origins.categories {
		number := l.addCategory(&q, groups, o.category)
		numberOf[o.category], *o.number = number, number
	}
	q.addReserves(l, groups, numberOf)
	q.addEvents(batch)
	return q
}

// addScope adds the keys of a scope, and returns its number.
func (q *question) addScope(l *Limiter, s scope) string {
	q.scopes = append(q.scopes, s)
	q.keyNames = append(q.keyNames, l.keys.bothForms(s.key)...)
	return strconv.Itoa(len(q.scopes))
}

// addCategory adds the scope of a category, after that of its group if this has a limit, and returns the category's number.
func (l *Limiter) addCategory(q *question, groups map[string]string, category string) string {
	p := q.plan
	above := globalRule // the global scope has the same number
	if p.numbers.group != "" || len(p.numbers.groups) > 0 {
		group := GroupOf(category)
		number, seen := groups[group]
		if rule := p.numbers.ofGroup(group); !seen && rule != "" {
			number = q.addScope(l, scope{Group, p.rules.GroupLimit(group), p.stored.GroupLimit(group), l.keys.group(group)})
			q.arguments = append(q.arguments, rule, globalRule)
		}
		groups[group] = number
		if number != "" {
			above = number
		}
	}
	number := q.addScope(l, scope{Category, p.rules.LimitFor(category), p.stored.LimitFor(category), l.keys.category(category)})
	q.arguments = append(q.arguments, p.numbers.ofCategory(p.rules, category), above)
	return number
}

// addReserves adds the scopes of the categories for which slots are kept, as far as the batch has none of them.
func (q *question) addReserves(l *Limiter, groups, numberOf map[string]string) {
	p := q.plan
	for _, category := range p.reserved {
		if numberOf[category] == "" {
			numberOf[category] = l.addCategory(q, groups, category)
		}
	}
	q.arguments = append(q.arguments, strconv.Itoa(len(p.reserved)))
	for _, category := range p.reserved {
		q.arguments = append(q.arguments, numberOf[category], strconv.Itoa(p.rules.Reserve[category]))
	}
}

// addEvents adds the events, column by column.
func (q *question) addEvents(batch []Request) {
	q.arguments = append(q.arguments, strconv.Itoa(len(batch)))
	members := make([]string, len(batch))
	for i, request := range batch {
		members[i] = q.origins.of[i].member(request.ID)
		q.arguments = append(q.arguments, &members[i])
	}
	for i := range batch {
		q.arguments = append(q.arguments, &batch[i].Delivery)
	}
	for i := range batch {
		q.arguments = append(q.arguments, q.origins.of[i].number)
	}
	if slices.ContainsFunc(batch, func(request Request) bool { return request.Cost != 1 }) {
		for _, request := range batch {
			q.arguments = append(q.arguments, strconv.Itoa(request.Cost))
		}
	}
}

// batchOrigins are the distinct categories of a batch, in the order in which they come, and what the ids of its events count within.
type batchOrigins struct {
	categories []*batchOrigin
	of         []*batchOrigin // of each event: one of the categories, or a source in it
}

// batchOrigin is an origin with the number by which the script refers to its category; a category and its sources share it.
type batchOrigin struct {
	origin
	number *string
}

func originsOf(batch []Request) batchOrigins {
	origins := batchOrigins{of: make([]*batchOrigin, len(batch))}
	byCategory := make(map[string]*batchOrigin, 32)
	for i, request := range batch {
		o, seen := byCategory[request.Category]
		if !seen {
			o = &batchOrigin{origin: newOrigin(request.Category, ""), number: new(string)}
			byCategory[request.Category] = o
			origins.categories = append(origins.categories, o)
		}
		origins.of[i] = o
	}
	type pair struct{ category, source string }
	var bySource map[pair]*batchOrigin // few publishers have sources
	for i, request := range batch {
		if request.Source == "" {
			continue
		}
		named := pair{request.Category, request.Source}
		o, seen := bySource[named]
		if !seen {
			o = &batchOrigin{origin: newOrigin(request.Category, sourceName(request.Source)), number: byCategory[request.Category].number}
			if bySource == nil {
				bySource = map[pair]*batchOrigin{}
			}
			bySource[named] = o
		}
		origins.of[i] = o
	}
	return origins
}
