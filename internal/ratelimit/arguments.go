package ratelimit

import (
	"slices"
	"strconv"
)

// ruleArguments are the rules as admit.lua takes them, made once. A call has those that its scopes refer to, however many there are.
type ruleArguments struct {
	global, category []any
	overrides        map[string][]any // by pattern
	groups           map[string][]any // by group
	group            []any            // of groups without an override; nil: they have no limit
}

func newRuleArguments(rules Rules) ruleArguments {
	arguments := ruleArguments{
		global: ruleArgument(rules.Global), category: ruleArgument(rules.Category),
		overrides: map[string][]any{}, groups: map[string][]any{},
	}
	for pattern, limit := range rules.Overrides.All() {
		arguments.overrides[pattern] = ruleArgument(limit)
	}
	for group, limit := range rules.GroupOverrides {
		arguments.groups[group] = ruleArgument(limit)
	}
	if len(rules.Group) > 0 {
		arguments.group = ruleArgument(rules.Group)
	}
	return arguments
}

// ruleArgument is a limit as admit.lua expects it: the numbers of tiers and of lengths of buckets, then these.
func ruleArgument(limit Limit) []any {
	grains := limit.grains()
	arguments := appendTiers([]any{strconv.Itoa(len(limit)), strconv.Itoa(len(grains))}, limit)
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

// ofCategory is a category's rule, and its name in a question.
func (a ruleArguments) ofCategory(rules Rules, category string) (name string, arguments []any) {
	if _, pattern, found := rules.Overrides.Find(category); found {
		return "override " + pattern, a.overrides[pattern]
	}
	return "category", a.category
}

// ofGroup is the same of a group; nil: it has none.
func (a ruleArguments) ofGroup(group string) (name string, arguments []any) {
	if arguments, found := a.groups[group]; found {
		return "group " + group, arguments
	}
	return "group", a.group
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
	members   []string // of the events

	rules       []any             // those that scopes refer to, one after the other
	ruleNumbers map[string]string // their numbers, by name
}

// globalNumber is the number of the global scope, and that of its rule.
const globalNumber = "1"

// question returns the call for a batch. Texts are passed by reference: an argument is an interface, which would cost each of
// them an allocation.
func (l *Limiter) question(batch []Request) question {
	p := l.plan.Load()
	q := question{
		plan:        p,
		keyNames:    []string{l.keys.register(), l.keys.inFlight(), l.keys.sent()},
		ruleNumbers: make(map[string]string, 8),
	}
	q.numberOfRule("global", p.arguments.global)
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

	ofScopes := q.arguments
	q.arguments = make([]any, 0, 4+len(q.rules)+len(ofScopes)+1+4*len(batch))
	q.arguments = append(q.arguments, p.dedupe, p.retain, l.healedNumber(), strconv.Itoa(len(q.ruleNumbers)))
	q.arguments = append(append(q.arguments, q.rules...), ofScopes...)
	q.addEvents(batch)
	return q
}

// numberOfRule returns the number of a rule, which is added when it is first asked for.
func (q *question) numberOfRule(name string, arguments []any) string {
	number, known := q.ruleNumbers[name]
	if !known {
		number = strconv.Itoa(len(q.ruleNumbers) + 1)
		q.ruleNumbers[name] = number
		q.rules = append(q.rules, arguments...)
	}
	return number
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
	above := globalNumber
	if p.arguments.group != nil || len(p.arguments.groups) > 0 {
		group := GroupOf(category)
		number, seen := groups[group]
		if name, rule := p.arguments.ofGroup(group); !seen && rule != nil {
			number = q.addScope(l, scope{Group, p.rules.GroupLimit(group), p.stored.GroupLimit(group), l.keys.group(group)})
			q.arguments = append(q.arguments, q.numberOfRule(name, rule), globalNumber)
		}
		groups[group] = number
		if number != "" {
			above = number
		}
	}
	number := q.addScope(l, scope{Category, p.rules.LimitFor(category), p.stored.LimitFor(category), l.keys.category(category)})
	q.arguments = append(q.arguments, q.numberOfRule(p.arguments.ofCategory(p.rules, category)), above)
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
	q.members = make([]string, len(batch))
	for i, request := range batch {
		q.members[i] = q.origins.of[i].member(request.ID)
		q.arguments = append(q.arguments, &q.members[i])
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
