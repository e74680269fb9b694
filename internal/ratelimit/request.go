package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/lua"
)

// This file encodes the calls of all scripts, and reply.go decodes their replies. Each function below lists
// KEYS and ARGV in the order of the script's head comment.

// scripts holds the scripts by their file names.
var scripts = newScripts()

func newScripts() map[string]*redis.Script {
	scripts := map[string]*redis.Script{}
	for name, source := range map[string]string{
		"admit.lua": lua.Admit, "begin.lua": lua.Begin, "answered.lua": lua.Answered, "pauses.lua": lua.Pauses,
		"sent.lua": lua.Sent, "refund.lua": lua.Refund, "peek.lua": lua.Peek, "restore.lua": lua.Restore,
		"quarantine.lua": lua.Quarantine,
	} {
		scripts[name] = redis.NewScript(source)
	}
	return scripts
}

// call is one call of a script.
type call struct {
	script    string
	keys      []string
	arguments []any
}

// run makes a call and decodes its reply.
func run[T any](
	ctx context.Context, l *Limiter, client redis.Scripter, c call, decode func(reply any) (T, error),
) (T, error) {
	reply, err := scripts[c.script].Run(ctx, client, c.keys, c.arguments...).Result()
	if err != nil {
		var none T
		return none, l.nameDamagedKey(ctx, err, c.keys)
	}
	value, err := decode(reply)
	if err != nil && !errors.Is(err, errHealing) {
		err = fmt.Errorf("unexpected reply from %s: %w", c.script, err)
	}
	return value, err
}

func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// Values of the token argument that match no token.
const (
	anyStore = ""  // every store may decide
	noStore  = "-" // no store may decide
)

// Positions of the first arguments of admit.lua. Rules, scopes, reservations, origins and events follow, each
// section after its length.
const (
	admitDedupe = iota
	admitLongest
	admitToken
	admitReplica
	admitDryRun
	admitHeader // count of these
)

// Numbers of scopes and rules in admit.lua.
const (
	noNumber     = "0"
	globalNumber = "1"
)

// admitCall is a call of admit.lua with the tables to which its reply refers.
type admitCall struct {
	call    call
	plan    *plan
	batch   []Request
	scopes  []scope // the script counts from 1
	origins batchOrigins
	members []string // by event
}

// newAdmitCall encodes a batch. The arguments point to texts, because converting a text to an interface
// allocates.
func (l *Limiter) newAdmitCall(batch []Request, token string) admitCall {
	c := admitCall{plan: l.plan.Load(), batch: batch, origins: originsOf(batch)}
	e := admitEncoder{
		plan: c.plan, keys: l.keys, keyNames: l.storeKeys(),
		ruleNumbers: map[string]string{}, scopeNumbers: map[scope]string{},
	}
	e.scope(globalScope)
	origins := make([]any, 0, 2*len(c.origins.all))
	for _, o := range c.origins.all {
		origins = append(origins, o.entry, e.scope(categoryScope(o.origin.category)))
	}
	var reservations []any
	for _, category := range c.plan.reserved {
		reservations = append(reservations,
			e.scope(categoryScope(category)), strconv.Itoa(c.plan.rules.Reserve[category]))
	}

	header := [admitHeader]any{
		admitDedupe:  micros(l.dedupe),
		admitLongest: micros(c.plan.retention),
		admitToken:   token,
		admitReplica: l.replica,
		admitDryRun:  flag(false),
	}
	arguments := make([]any, 0,
		len(header)+len(e.rules)+len(e.scopeRows)+len(reservations)+len(origins)+4*len(batch)+4)
	arguments = append(arguments, header[:]...)
	arguments = append(append(arguments, strconv.Itoa(len(e.ruleNumbers))), e.rules...)
	arguments = append(arguments, e.scopeRows...)
	arguments = append(append(arguments, strconv.Itoa(len(c.plan.reserved))), reservations...)
	arguments = append(append(arguments, strconv.Itoa(len(c.origins.all))), origins...)
	c.scopes = e.scopes
	c.call = call{"admit.lua", e.keyNames, c.appendEvents(arguments)}
	return c
}

// newDryRun returns a call that decides one event and writes nothing. The empty id matches no event in flight
// or sent.
func (l *Limiter) newDryRun(request Request, token string) admitCall {
	c := l.newAdmitCall([]Request{request}, token)
	c.call.arguments[admitDryRun] = flag(true)
	c.members[0] = "" // the arguments point here
	return c
}

// appendEvents appends the columns of the events: ids, stream messages, numbers of origins and costs.
func (c *admitCall) appendEvents(arguments []any) []any {
	arguments = append(arguments, strconv.Itoa(len(c.batch)))
	c.members = make([]string, len(c.batch))
	for i, request := range c.batch {
		c.members[i] = c.origins.of[i].origin.member(request.ID)
		arguments = append(arguments, &c.members[i])
	}
	for i := range c.batch {
		arguments = append(arguments, &c.batch[i].Delivery)
	}
	for i := range c.batch {
		arguments = append(arguments, &c.origins.of[i].number)
	}
	if slices.ContainsFunc(c.batch, func(request Request) bool { return request.Cost != 1 }) {
		for _, request := range c.batch {
			arguments = append(arguments, strconv.Itoa(request.Cost))
		}
	}
	return arguments
}

// admitEncoder numbers the rules and scopes of a call.
type admitEncoder struct {
	plan         *plan
	keys         keys
	keyNames     []string
	scopes       []scope
	scopeNumbers map[scope]string
	scopeRows    []any
	rules        []any
	ruleNumbers  map[string]string // by name
}

// scope returns the number of a scope. It adds a new scope after the next wider one.
func (e *admitEncoder) scope(s scope) string {
	if number, added := e.scopeNumbers[s]; added {
		return number
	}
	wider := noNumber
	if s.level != Global {
		wider = globalNumber
	}
	if s.level == Category {
		if group := groupScope(s.name); len(e.plan.rules.limitOf(group)) > 0 {
			wider = e.scope(group)
		}
	}
	e.keyNames = append(e.keyNames, e.keys.scope(s)...)
	e.scopeRows = append(e.scopeRows, e.rule(e.plan.rules.ruleName(s)), wider, micros(e.plan.keep(s)))
	e.scopes = append(e.scopes, s)
	number := strconv.Itoa(len(e.scopes))
	e.scopeNumbers[s] = number
	return number
}

func (e *admitEncoder) rule(name string) string {
	number, added := e.ruleNumbers[name]
	if !added {
		number = strconv.Itoa(len(e.ruleNumbers) + 1)
		e.ruleNumbers[name] = number
		e.rules = append(e.rules, e.plan.encoded[name]...)
	}
	return number
}

// ruleName names the rule of a scope. Scopes with the same name have the same limit.
func (r Rules) ruleName(s scope) string {
	switch s.level {
	case Group:
		if _, found := r.GroupOverrides[s.name]; found {
			return "group " + s.name
		}
		return "group"
	case Category:
		if _, pattern, found := r.Overrides.Find(s.name); found {
			return "override " + pattern
		}
		return "category"
	default:
		return "global"
	}
}

// encodeRules encodes each rule once per plan, by its ruleName.
func encodeRules(r Rules) map[string][]any {
	encoded := map[string][]any{
		"global": encodeRule(r.Global), "category": encodeRule(r.Category), "group": encodeRule(r.Group),
	}
	for pattern, limit := range r.Overrides.All() {
		encoded["override "+pattern] = encodeRule(limit)
	}
	for group, limit := range r.GroupOverrides {
		encoded["group "+group] = encodeRule(limit)
	}
	return encoded
}

// encodeRule lists the number of tiers, the bucket width and the tiers.
func encodeRule(limit Limit) []any {
	return appendTiers([]any{strconv.Itoa(len(limit)), micros(limit.bucketWidth())}, limit)
}

func appendTiers(arguments []any, limit Limit) []any {
	for _, tier := range limit {
		arguments = append(arguments, strconv.Itoa(tier.Count), micros(tier.Window), flag(tier.Fixed))
	}
	return arguments
}

// batchOrigins holds the distinct origins of a batch.
type batchOrigins struct {
	all []*batchOrigin
	of  []*batchOrigin // by event
}

type batchOrigin struct {
	origin        origin
	number, entry string // in the call, and in the index
}

func originsOf(batch []Request) batchOrigins {
	origins := batchOrigins{of: make([]*batchOrigin, len(batch))}
	type pair struct{ category, source string }
	known := make(map[pair]*batchOrigin, 32)
	for i, request := range batch {
		named := pair{request.Category, request.Source}
		o := known[named]
		if o == nil {
			source := sourceName(request.Source)
			o = &batchOrigin{
				origin: newOrigin(request.Category, source),
				number: strconv.Itoa(len(origins.all) + 1),
				entry:  indexEntry(request.Category, source),
			}
			known[named] = o
			origins.all = append(origins.all, o)
		}
		origins.of[i] = o
	}
	return origins
}

// storeKeys returns the first keys of admit.lua and restore.lua. The keys of scopes follow.
func (l *Limiter) storeKeys() []string {
	return []string{l.keys.meta(), l.keys.inFlight(), l.keys.sent(), l.keys.categories()}
}

// withSlots appends the logs that may hold an event's slots, and how the slots count: the last keys and
// arguments of the scripts that move them. A message without an event lacks them. The group's log is present
// whether the group has a limit or not, as another worker may have charged it.
func (l *Limiter) withSlots(c call, request Request) call {
	if request == (Request{}) {
		return c
	}
	p := l.plan.Load()
	category, group := categoryScope(request.Category), groupScope(request.Category)
	c.arguments = append(c.arguments, strconv.Itoa(request.Cost))
	var tiers []any
	for i, s := range []scope{category, group, globalScope} {
		c.keys = append(c.keys, l.keys.scope(s)[0])
		c.arguments = append(c.arguments, micros(p.keep(s)))
		for _, tier := range p.rules.limitOf(s) {
			tiers = append(tiers, strconv.Itoa(i+1), micros(tier.Window), flag(tier.Fixed))
		}
	}
	c.arguments = append(c.arguments, tiers...)
	return c
}

func (l *Limiter) sentCall(request Request) call {
	return l.withSlots(call{
		"sent.lua",
		[]string{l.keys.meta(), l.keys.inFlight(), l.keys.sent()},
		[]any{request.member(), micros(l.dedupe), l.knownToken(), request.Delivery},
	}, request)
}

// refundCall releases slots. The keys of the group are present whether it has a limit or not: the record of
// the event tells whether the group was charged.
func (l *Limiter) refundCall(request Request, slots int, lastPost, token string) call {
	keyNames := []string{l.keys.meta(), l.keys.inFlight()}
	for _, s := range []scope{globalScope, categoryScope(request.Category), groupScope(request.Category)} {
		keyNames = append(keyNames, l.keys.scope(s)...)
	}
	return call{
		"refund.lua", keyNames,
		[]any{request.member(), request.Delivery, strconv.Itoa(slots), lastPost, token},
	}
}

// webhookChannel names the only channel of a webhook, for which the settings have no name.
const webhookChannel = "webhook"

// unpacedWindow is the time during which begin.lua recognizes a repeated call if there is no pace.
const unpacedWindow = 10 * time.Second

func (l *Limiter) beginCall(post Post, event string) call {
	channel, pace := cmp.Or(post.Channel, webhookChannel), l.standing.Pace
	return l.withSlots(call{
		"begin.lua",
		[]string{l.keys.inFlight(), l.keys.pauses(), l.keys.probes(), l.keys.pace(channel), l.keys.meta(),
			l.keys.paceWaiting(channel)},
		[]any{
			event,
			post.Request.Delivery,
			post.Known,
			post.Name,
			micros(post.Longest),
			channel,
			strconv.Itoa(pace.Count),
			micros(cmp.Or(pace.Window, unpacedWindow)),
			flag(post.First),
			micros(LongestPause),
			micros(l.plan.Load().remembers),
			l.knownToken(),
			post.Worker,
			strconv.FormatInt(max(0, post.Since.UnixMicro()), 10),
		},
	}, post.Request)
}

func (l *Limiter) answeredCall(answer Answer, event string) call {
	channel, word := cmp.Or(answer.Channel, webhookChannel), "failed"
	switch {
	case answer.RetryAfter > 0:
		word = "refused"
	case answer.Posted:
		word = "posted"
	}
	return l.withSlots(call{
		"answered.lua",
		[]string{l.keys.pauses(), l.keys.probes(), l.keys.pace(channel), l.keys.inFlight(), l.keys.meta()},
		[]any{
			channel,
			answer.Name,
			word,
			micros(max(answer.RetryAfter, 0)),
			micros(LongestPause),
			event,
			answer.Request.Delivery,
			flag(answer.Failed),
		},
	}, answer.Request)
}

func (l *Limiter) pausesCall() call {
	return call{"pauses.lua", []string{l.keys.pauses()}, []any{micros(LongestPause)}}
}

func (l *Limiter) peekCall(rules Rules, scopes []scope) call {
	c := call{script: "peek.lua", keys: []string{l.keys.meta()}}
	for _, s := range scopes {
		limit := rules.limitOf(s)
		c.keys = append(c.keys, l.keys.scope(s)...)
		c.arguments = appendTiers(append(c.arguments, strconv.Itoa(len(limit))), limit)
	}
	return c
}

func quarantineCall(k keys, generation string, closed time.Duration) call {
	return call{"quarantine.lua", []string{k.meta()}, []any{generation, micros(closed), micros(healMax)}}
}

// restoreCall restores remembered admissions.
func (l *Limiter) restoreCall(p *plan, token string, entries []remembered) call {
	keyNames := l.storeKeys()
	var scopeRows []any
	numbers := map[scope]int{}
	number := func(s scope) int {
		n, added := numbers[s]
		if !added {
			n = len(numbers) + 1
			numbers[s] = n
			keyNames = append(keyNames, l.keys.scope(s)...)
			scopeRows = append(scopeRows, micros(p.rules.limitOf(s).bucketWidth()), micros(p.keep(s)))
		}
		return n
	}
	global := number(globalScope)
	var members, rows []any
	for _, r := range entries {
		category, _ := parseIndexEntry(r.entry)
		categoryNumber, groupNumber := number(categoryScope(category)), 0
		if group := groupScope(category); r.grouped && len(p.rules.limitOf(group)) > 0 {
			groupNumber = number(group)
		}
		members = append(members, r.member)
		rows = append(rows,
			r.at, flag(r.redelivered), r.cost, r.entry,
			categoryNumber, groupNumber, global,
			r.sent, r.countsFrom(), flag(r.released), r.record())
	}
	arguments := []any{
		token, l.replica, micros(l.dedupe), micros(p.retention), micros(healMore), micros(healMax),
	}
	arguments = append(append(arguments, strconv.Itoa(len(numbers))), scopeRows...)
	arguments = append(append(arguments, strconv.Itoa(len(entries))), members...)
	return call{"restore.lua", keyNames, append(arguments, rows...)}
}
