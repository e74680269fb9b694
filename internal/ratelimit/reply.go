package ratelimit

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"notifier/internal/outcome"
)

// This file decodes the replies of all scripts. Every deviation from a script's head comment is an error, so
// that the reply of a wrong server, proxy or script version never permits a post.

// Verdict is the decision about one event.
type Verdict int

// The zero Verdict is invalid, so that an unset Decision never admits.
const (
	Admitted  Verdict = iota + 1 // charged to all its scopes, once
	Duplicate                    // sent within the dedupe window, or in flight for another stream message
	Global                       // refused by the global limit
	Group                        // refused by the limit of its group
	Category                     // refused by the limit of its category
)

// Reason returns the reason of a drop in the words of package outcome. It returns "" for Admitted, and panics
// on an invalid Verdict.
func (v Verdict) Reason() string {
	reason, valid := reasons[v]
	if !valid {
		panic(fmt.Sprintf("ratelimit: %d is no verdict", v))
	}
	return reason
}

var reasons = map[Verdict]string{
	Admitted: "", Duplicate: outcome.Duplicate, Global: outcome.Global, Group: outcome.Group,
	Category: outcome.Category,
}

// Decision is the result for one event. The fields after Verdict describe a refusal by Global, Group or
// Category, and are zero otherwise.
type Decision struct {
	Verdict    Verdict
	Tier       Tier          // of several tiers without room, the last one to have it again
	Used       int           // slots taken in Tier
	Reserved   int           // slots of Tier reserved for other categories; Global only
	RetryAfter time.Duration // until an event of the same cost fits, if nothing else is admitted
	AtLeast    bool          // RetryAfter is a lower bound
	Never      bool          // the cost can never fit under this temporary limit and the reservations

	// Posts counts posts that began under an earlier admission of this event. LastPost names the last of
	// them, which may be in Slack. It is empty if there was none, or if all certainly failed.
	Posts    int
	LastPost string
}

// decoder reads the fields of a reply. It keeps the first error; later calls return zero values.
type decoder struct{ err error }

func (d *decoder) fail(format string, arguments ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, arguments...)
	}
}

func (d *decoder) number(field any, name string) int64 {
	value, ok := field.(int64)
	if !ok {
		d.fail("%s is a %T, expected a whole number", name, field)
	}
	return value
}

func (d *decoder) text(field any, name string) string {
	value, ok := field.(string)
	if !ok {
		d.fail("%s is a %T, expected a text", name, field)
	}
	return value
}

// word reads the status word with which a reply begins. It fails with errHealing if the store has another
// token.
func (d *decoder) word(reply any) string {
	fields := d.list(reply, "reply")
	if len(fields) == 0 {
		d.fail("an empty reply, expected a status word")
		return ""
	}
	word, ok := fields[0].(string)
	if !ok {
		d.fail("status is a %T, expected a word", fields[0])
	}
	if word == "unknown store" {
		d.err = errHealing
	}
	return word
}

func (d *decoder) list(field any, name string) []any {
	values, ok := field.([]any)
	if !ok {
		d.fail("%s is a %T, expected a list", name, field)
	}
	return values
}

// row reads a list with this number of columns. After an error it returns as many nil values.
func (d *decoder) row(field any, name string, columns int) []any {
	values := d.list(field, name)
	if d.err == nil && len(values) != columns {
		d.fail("%s has %d entries, expected %d", name, len(values), columns)
	}
	if d.err != nil {
		return make([]any, columns)
	}
	return values
}

// rows reads a flat list of rows.
func (d *decoder) rows(field any, name string, columns int) iter.Seq[[]any] {
	values := d.list(field, name)
	if len(values)%columns != 0 {
		d.fail("%s has %d entries, expected %d each", name, len(values), columns)
		values = nil
	}
	return slices.Chunk(values, columns)
}

// span converts microseconds. It returns the longest Duration instead of overflowing.
func span(micros int64) time.Duration {
	return time.Duration(min(micros, math.MaxInt64/int64(time.Microsecond))) * time.Microsecond
}

// Columns of admit.lua's reply "decided".
const (
	_ = iota // the status word
	decidedNow
	decidedLag
	decidedVerdicts
	decidedRefusals
	decidedReadmitted
	decidedRedecided
	decidedColumns
)

// Columns of a refusal.
const (
	refusalScope = iota
	refusalTier
	refusalUsed
	refusalWait
	refusalKept
	refusalLowerBound
	refusalColumns
)

// Columns of an event in "readmitted".
const (
	readmittedEvent = iota
	readmittedAdmission
	readmittedColumns
)

// Columns of an event in "redecided".
const (
	redecidedEvent = iota
	redecidedPosts
	redecidedBegun
	redecidedName
	redecidedColumns
)

// admitReply is a decoded reply of admit.lua. Times are microseconds by the clock of Redis, and the keys of
// maps are positions in the batch.
type admitReply struct {
	now        int64
	lag        time.Duration
	decisions  []Decision
	readmitted map[int]int64 // admission times of events that were admitted again free of charge
	redecided  map[int]posts // posts under an earlier admission of events that were decided again
}

type posts struct {
	count int
	begun int64  // the last one
	name  string // of the last one. Empty if it certainly failed.
}

// decode returns errHealing if the store is closed or has another token.
func (c admitCall) decode(reply any) (admitReply, error) {
	var d decoder
	switch word := d.word(reply); {
	case d.err != nil:
	case word == "closed":
		d.err = errHealing
	case word != "decided":
		d.fail("%q, expected decided", word)
	}
	fields := d.row(reply, "reply", decidedColumns)
	a := admitReply{
		now: d.number(fields[decidedNow], "now"),
		lag: span(max(0, d.number(fields[decidedLag], "lag"))),
	}
	refusals := c.refusals(&d, fields[decidedRefusals])
	a.decisions = make([]Decision, len(c.batch))
	for i, field := range d.row(fields[decidedVerdicts], "verdicts", len(c.batch)) {
		switch verdict := d.number(field, "verdict"); {
		case verdict == 1:
			a.decisions[i] = Decision{Verdict: Admitted}
		case verdict == 0:
			a.decisions[i] = Decision{Verdict: Duplicate}
		case verdict < 0 && verdict >= -int64(len(refusals)):
			a.decisions[i] = refusals[-verdict-1]
		default:
			d.fail("verdict %d, expected 1, 0 or the number of one of %d refusals", verdict, len(refusals))
		}
	}
	a.readReadmitted(&d, fields[decidedReadmitted])
	a.readRedecided(&d, fields[decidedRedecided])
	if d.err != nil {
		return admitReply{}, d.err
	}
	return a, nil
}

func (c admitCall) refusals(d *decoder, reply any) []Decision {
	fields := d.list(reply, "refusals")
	refusals := make([]Decision, len(fields))
	for i, field := range fields {
		var columns [refusalColumns]int64
		for j, column := range d.row(field, "refusal", refusalColumns) {
			columns[j] = d.number(column, "refusal")
		}
		refusals[i] = c.refusal(d, columns)
	}
	return refusals
}

func (c admitCall) refusal(d *decoder, columns [refusalColumns]int64) Decision {
	n, tier := columns[refusalScope], columns[refusalTier]
	if n < 1 || n > int64(len(c.scopes)) {
		d.fail("scope %d, expected 1 to %d", n, len(c.scopes))
		return Decision{}
	}
	s := c.scopes[n-1]
	limit := c.plan.rules.limitOf(s)
	if tier < 1 || tier > int64(len(limit)) {
		d.fail("tier %d, expected 1 to %d", tier, len(limit))
		return Decision{}
	}
	used, wait, kept := columns[refusalUsed], columns[refusalWait], columns[refusalKept]
	if used < 0 || wait < -1 || kept < 0 || kept > maxCount {
		d.fail("used %d, wait %d and kept %d, expected no negative number and at most %d kept", used, wait, kept,
			maxCount)
	}
	decision := Decision{
		Verdict: s.level, Tier: limit[tier-1], Used: int(used), Reserved: int(kept),
		Never: wait < 0,
	}
	decision.RetryAfter, decision.AtLeast = c.plan.ends.Bound(
		s.public(), time.Now(), max(0, span(wait)), columns[refusalLowerBound] == 1)
	return decision
}

func (a *admitReply) readReadmitted(d *decoder, reply any) {
	for row := range d.rows(reply, "readmitted", readmittedColumns) {
		n := d.number(row[readmittedEvent], "event")
		at := d.number(row[readmittedAdmission], "admission")
		if n < 1 || n > int64(len(a.decisions)) || a.decisions[n-1].Verdict != Admitted {
			d.fail("event %d was admitted again, expected one of %d that is admitted", n, len(a.decisions))
			return
		}
		if a.readmitted == nil {
			a.readmitted = map[int]int64{}
		}
		a.readmitted[int(n)-1] = at
	}
}

// readRedecided also adds the posts to refusals. For an admitted event, Begin reports them.
func (a *admitReply) readRedecided(d *decoder, reply any) {
	for row := range d.rows(reply, "redecided", redecidedColumns) {
		n, count := d.number(row[redecidedEvent], "redecided"), d.number(row[redecidedPosts], "redecided")
		begun := d.number(row[redecidedBegun], "redecided")
		name, isText := row[redecidedName].(string)
		if n < 1 || n > int64(len(a.decisions)) || count < 0 || begun < 0 || !isText {
			d.fail("redecided has %v, expected one of %d events and its posts", row, len(a.decisions))
			return
		}
		if a.redecided == nil {
			a.redecided = map[int]posts{}
		}
		a.redecided[int(n)-1] = posts{count: int(count), begun: begun, name: name}
		if decision := &a.decisions[n-1]; decision.Verdict != Admitted {
			decision.Posts, decision.LastPost = int(count), name
		}
	}
}

// decodeSent returns from when the slots of a sent event count, or 0 if they were not moved.
func decodeSent(reply any) (moved int64, err error) {
	var d decoder
	if word := d.word(reply); word != "recorded" {
		d.fail("%q, expected recorded", word)
	}
	if d.err != nil {
		return 0, d.err
	}
	fields := d.row(reply, "reply", sentColumns)
	d.number(fields[sentTime], "time")
	return d.number(fields[sentMoved], "time"), d.err
}

// decodeWord returns a decoder of refund.lua's reply, which must be one of the words.
func decodeWord(words ...string) func(reply any) (string, error) {
	return func(reply any) (string, error) {
		var d decoder
		word := d.word(reply)
		if !slices.Contains(words, word) {
			d.fail("%q, expected %s", word, strings.Join(words, " or "))
		}
		return word, d.err
	}
}

// Columns of replies of begin.lua.
const (
	permitStatus = iota
	permitNumber // posts of the event, or microseconds to wait
	permitName   // of its last post
	permitMoved  // from when the event's slots count
	permitColumns
)

// Columns of replies of answered.lua.
const (
	answeredStatus = iota
	answeredLeft   // of the pause
	answeredMoved  // from when the event's slots count, or 0
	answeredColumns
)

// Columns of replies of sent.lua.
const (
	sentStatus = iota
	sentTime
	sentMoved // from when the event's slots count, or 0
	sentColumns
)

var permitStatuses = map[string]PermitStatus{
	"post": Granted, "wait workspace": WorkspacePaused, "wait channel": ChannelPaused, "wait pace": Paced,
	"wait event": Leased, "unknown": LastPostUnknown, "not in flight": NotInFlight,
}

func decodePermit(reply any) (permitted, error) {
	var d decoder
	fields := d.row(reply, "reply", permitColumns)
	word := d.word(fields)
	number, name := d.number(fields[permitNumber], "number"), d.text(fields[permitName], "name")
	moved := d.number(fields[permitMoved], "time")
	status, known := permitStatuses[word]
	counts := status == Granted || status == LastPostUnknown
	switch {
	case !known:
		d.fail("status %q, expected one of begin.lua's", word)
	case (status == NotInFlight) != (number == 0) || number < 0:
		d.fail("%q with %d, expected a number above 0, or 0 if not in flight", word, number)
	case status != LastPostUnknown && name != "":
		d.fail("%q with the name %q, expected none", word, name)
	case !counts && number > LongestPause.Microseconds():
		d.fail("%q with %d, expected no time above %s", word, number, LongestPause)
	}
	switch {
	case d.err != nil:
		return permitted{}, d.err
	case counts:
		return permitted{Permit{Status: status, Posts: int(number), Last: name}, moved}, nil
	}
	return permitted{Permit{Status: status, Wait: span(number)}, moved}, nil
}

var pauseScopes = map[string]PauseScope{
	"none": NoPause, "channel": PausedChannel, "workspace": PausedWorkspace,
}

func decodeAnswered(reply any) (started, error) {
	var d decoder
	fields := d.row(reply, "reply", answeredColumns)
	word, left := d.word(fields), d.number(fields[answeredLeft], "number")
	moved := d.number(fields[answeredMoved], "time")
	scope, known := pauseScopes[word]
	if !known {
		d.fail("status %q, expected one of answered.lua's", word)
	}
	if left < 0 || left > LongestPause.Microseconds() {
		d.fail("%q with %d, expected a time from 0 to %s", word, left, LongestPause)
	}
	if d.err != nil {
		return started{}, d.err
	}
	return started{scope, span(left), moved}, nil
}

// Columns of a pause.
const (
	pauseChannel = iota
	pauseLeft
	pauseColumns
)

func decodePauses(reply any) ([]Pause, error) {
	var d decoder
	pauses := []Pause{}
	for row := range d.rows(reply, "pauses", pauseColumns) {
		channel, isText := row[pauseChannel].(string)
		left := d.number(row[pauseLeft], "time left")
		if !isText || left <= 0 || left > LongestPause.Microseconds() {
			d.fail("pause %v, expected a channel and a time", row)
		}
		if channel == "*" {
			channel = ""
		}
		pauses = append(pauses, Pause{Channel: channel, Left: span(left)})
	}
	if d.err != nil {
		return nil, d.err
	}
	slices.SortFunc(pauses, func(a, b Pause) int { return cmp.Compare(a.Channel, b.Channel) })
	return pauses, nil
}

// Columns of peek.lua's reply, and of its numbers for each tier.
const (
	peekNow = iota
	peekNumbers
	peekColumns
)

const (
	usageUsed = iota
	usageWait
	usageLowerBound
	usageColumns
)

// decodeUsages fills in usages, one for each tier, and returns the time of the reply.
func decodeUsages(reply any, usages []Usage) (now time.Time, err error) {
	var d decoder
	fields := d.row(reply, "reply", peekColumns)
	micros := d.number(fields[peekNow], "now")
	numbers := d.row(fields[peekNumbers], "numbers", usageColumns*len(usages))
	for i := range usages {
		row := numbers[usageColumns*i:]
		used, wait := d.number(row[usageUsed], "used"), d.number(row[usageWait], "wait")
		lowerBound := d.number(row[usageLowerBound], "lower bound") == 1
		if used < 0 || wait < 0 {
			d.fail("used %d and wait %d, expected no negative number", used, wait)
		}
		usages[i].Used, usages[i].FreeIn, usages[i].AtLeast = int(used), span(wait), lowerBound
	}
	if d.err != nil {
		return time.Time{}, d.err
	}
	return time.UnixMicro(micros).UTC(), nil
}

// Columns of quarantine.lua's reply.
const (
	quarantineToken = iota
	quarantineWait
	quarantineColumns
)

// quarantined names a store by its token, and tells how long it stays closed.
type quarantined struct {
	token string
	left  time.Duration
}

func decodeQuarantine(reply any) (quarantined, error) {
	var d decoder
	fields := d.row(reply, "reply", quarantineColumns)
	token, wait := d.text(fields[quarantineToken], "token"), d.number(fields[quarantineWait], "wait")
	if wait < 0 || span(wait) > healMax {
		d.fail("%v, expected a token and a time up to %s", fields, healMax)
	}
	if d.err != nil {
		return quarantined{}, d.err
	}
	return quarantined{token, span(wait)}, nil
}

// Columns of restore.lua's reply.
const (
	restoreDone = iota
	restoreSlots
	restoreInFlight
	restoreSent
	restoreColumns
)

// restored counts the entries that a store was missing.
type restored struct {
	known                 bool // the store still has the token
	slots, inFlight, sent int64
}

func decodeRestored(reply any) (restored, error) {
	var d decoder
	var columns [restoreColumns]int64
	for i, field := range d.row(reply, "reply", restoreColumns) {
		columns[i] = d.number(field, "restored")
	}
	return restored{
		columns[restoreDone] != 0, columns[restoreSlots], columns[restoreInFlight], columns[restoreSent],
	}, d.err
}
