package ratelimit

import (
	"slices"
	"strconv"
	"time"
)

// ruleArguments are the rules as admit.lua takes them, made once. A call has those that its scopes refer to,
// however many there are.
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

// ruleArgument is a limit as admit.lua expects it: the number of tiers, the bucket width, and the tiers.
func ruleArgument(limit Limit) []any {
	return appendTiers([]any{strconv.Itoa(len(limit)), micros(limit.bucketWidth())}, limit)
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
	Scope
	verdict Verdict // what a refusal by it is: Global, Group or Category
	limit   Limit
}

// admitCall is one call of admit.lua: what it is given, and what its reply refers to.
type admitCall struct {
	plan      *plan
	keyNames  []string
	arguments []any
	scopes    []scope // the n-th is number n+1 to the script
	origins   batchOrigins
	members   []string // of the events

	rules       []any             // those that scopes refer to, one after the other
	ruleNumbers map[string]string // their numbers, by name
}

// globalNumber is the number of the global scope, and that of its rule; noNumber is the number of no scope.
const (
	globalNumber = "1"
	noNumber     = "0"
)

// newAdmitCall returns the call for a batch. Texts are passed by reference: an argument is an interface,
// which would cost each of them an allocation.
func (l *Limiter) newAdmitCall(batch []Request, token string) admitCall {
	p := l.plan.Load()
	q := admitCall{
		plan:        p,
		keyNames:    []string{l.keys.meta(), l.keys.inFlight(), l.keys.sent(), l.keys.categories()},
		ruleNumbers: make(map[string]string, 8),
	}
	q.addScope(l.keys.bothForms(l.keys.global()), scope{Scope{}, Global, p.rules.Global},
		q.numberOfRule("global", p.arguments.global), noNumber, p.keepGlobal())

	// Each distinct category is one scope, and so is each distinct group. The events refer to the categories.
	q.origins = originsOf(batch)
	groups := map[string]string{}
	numberOf := make(map[string]string, len(q.origins.categories))
	for _, category := range q.origins.categories {
		numberOf[category] = l.addCategory(&q, groups, category)
	}
	q.addReservations(l, groups, numberOf)

	ofScopes := q.arguments
	q.arguments = make([]any, 0, 9+len(q.rules)+len(ofScopes)+2*len(q.origins.all)+4*len(batch))
	q.arguments = append(q.arguments, micros(l.dedupe), micros(p.retention), token, l.replica, flag(false),
		strconv.Itoa(len(q.ruleNumbers)))
	q.arguments = append(append(q.arguments, q.rules...), ofScopes...)
	q.addOrigins(numberOf)
	q.addEvents(batch)
	return q
}

// dryRunArgument is the index of the argument that asks for a dry run.
const dryRunArgument = 4

// newDryRun returns a call that decides about one event and writes nothing. The event's id is empty: no event
// in flight or sent has the same.
func (l *Limiter) newDryRun(batch []Request, token string) admitCall {
	q := l.newAdmitCall(batch, token)
	q.arguments[dryRunArgument] = flag(true)
	q.members[0] = "" // the arguments refer to it
	return q
}

// numberOfRule returns the number of a rule, which is added when it is first asked for.
func (q *admitCall) numberOfRule(name string, arguments []any) string {
	number, known := q.ruleNumbers[name]
	if !known {
		number = strconv.Itoa(len(q.ruleNumbers) + 1)
		q.ruleNumbers[name] = number
		q.rules = append(q.rules, arguments...)
	}
	return number
}

// addScope adds a scope, and returns its number.
func (q *admitCall) addScope(keyNames []string, s scope, rule, wider string, keep time.Duration) string {
	q.scopes = append(q.scopes, s)
	q.keyNames = append(q.keyNames, keyNames...)
	q.arguments = append(q.arguments, rule, wider, micros(keep))
	return strconv.Itoa(len(q.scopes))
}

// addCategory adds the scope of a category, after that of its group if this has a limit, and returns the
// category's number.
func (l *Limiter) addCategory(q *admitCall, groups map[string]string, category string) string {
	p := q.plan
	wider := l.addGroup(q, groups, GroupOf(category))
	name, rule := p.arguments.ofCategory(p.rules, category)
	return q.addScope(l.keys.bothForms(l.keys.category(category)),
		scope{Scope{Category: category}, Category, p.rules.LimitFor(category)},
		q.numberOfRule(name, rule), wider, p.keepCategory(category))
}

// addGroup adds the scope of a group the first time it is asked for, and returns its number; that of the
// global scope if the group has no limit.
func (l *Limiter) addGroup(q *admitCall, groups map[string]string, group string) string {
	p := q.plan
	name, rule := p.arguments.ofGroup(group)
	if rule == nil {
		return globalNumber
	}
	if groups[group] == "" {
		groups[group] = q.addScope(l.keys.bothForms(l.keys.group(group)),
			scope{Scope{Group: group}, Group, p.rules.GroupLimit(group)},
			q.numberOfRule(name, rule), globalNumber, p.keepGroup(group))
	}
	return groups[group]
}

// addReservations adds what is reserved, and the scopes of those categories of which the batch has no events.
func (q *admitCall) addReservations(l *Limiter, groups, numberOf map[string]string) {
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

// addOrigins adds the entries of the index, each with the number of its category.
func (q *admitCall) addOrigins(numberOf map[string]string) {
	q.arguments = append(q.arguments, strconv.Itoa(len(q.origins.all)))
	for _, o := range q.origins.all {
		q.arguments = append(q.arguments, o.entry, numberOf[o.category])
	}
}

// addEvents adds the events, column by column.
func (q *admitCall) addEvents(batch []Request) {
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
		q.arguments = append(q.arguments, &q.origins.of[i].number)
	}
	if slices.ContainsFunc(batch, func(request Request) bool { return request.Cost != 1 }) {
		for _, request := range batch {
			q.arguments = append(q.arguments, strconv.Itoa(request.Cost))
		}
	}
}

// batchOrigins are what the ids of a batch count within: its categories, and the sources in them.
type batchOrigins struct {
	categories []string // each once, in the order in which they come
	all        []*batchOrigin
	of         []*batchOrigin // of each event
}

// batchOrigin is an origin with the number by which the events refer to it, and its entry of the index.
type batchOrigin struct {
	origin
	number, entry string
}

func originsOf(batch []Request) batchOrigins {
	origins := batchOrigins{of: make([]*batchOrigin, len(batch))}
	type pair struct{ category, source string }
	known := make(map[pair]*batchOrigin, 32)
	seen := make(map[string]bool, 32)
	for i, request := range batch {
		named := pair{request.Category, request.Source}
		o := known[named]
		if o == nil {
			source := sourceName(request.Source)
			o = &batchOrigin{
				origin: newOrigin(request.Category, source), number: strconv.Itoa(len(origins.all) + 1),
				entry: indexEntry(request.Category, source),
			}
			known[named] = o
			origins.all = append(origins.all, o)
			if !seen[request.Category] {
				seen[request.Category] = true
				origins.categories = append(origins.categories, request.Category)
			}
		}
		origins.of[i] = o
	}
	return origins
}
