package ratelimit

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// admitReply is what admit.lua replies about a batch. Times are microseconds of the server's clock.
type admitReply struct {
	now       int64
	lag       time.Duration
	decisions []Decision
	earlier   map[int]int64 // admission times of events that were in flight already, by place in the batch
	posted    map[int]posts // of events that were decided again, by place in the batch
}

// posts are those of an event under an earlier admission.
type posts struct {
	count int
	begun int64  // the last one
	name  string // its name; empty if it certainly failed
}

// decode validates every field of the reply from admit.lua: any deviation from the script's contract is an
// error, so that the reply of a wrong server, proxy or script version is never taken for permission to send.
// ErrHealing: nothing was decided.
func (q admitCall) decode(reply any, batch []Request) (a admitReply, err error) {
	word, err := replyWord(reply)
	switch {
	case err != nil:
		return admitReply{}, err
	case word == "closed":
		return admitReply{}, ErrHealing
	case word != "decided":
		return admitReply{}, fmt.Errorf("%q, expected decided", word)
	}
	fields, err := list(reply, "reply", 7)
	if err != nil {
		return admitReply{}, err
	}
	if a.now, err = number(fields[1], "now"); err != nil {
		return admitReply{}, err
	}
	lag, err := number(fields[2], "lag")
	if err != nil {
		return admitReply{}, err
	}
	a.lag = span(max(0, lag))
	if a.decisions, err = q.decisions(fields[3], fields[4], batch); err != nil {
		return admitReply{}, err
	}
	if a.earlier, err = admittedEarlier(fields[5], a.decisions); err != nil {
		return admitReply{}, err
	}
	if a.posted, err = postedEarlier(fields[6], a.decisions); err != nil {
		return admitReply{}, err
	}
	return a, nil
}

// replyWord is the status word with which a reply begins. ErrHealing: the store has another token.
func replyWord(reply any) (string, error) {
	fields, err := list(reply, "reply", -1)
	if err != nil {
		return "", err
	}
	if len(fields) == 0 {
		return "", errors.New("an empty reply, expected a status word")
	}
	word, isText := fields[0].(string)
	if !isText {
		return "", fmt.Errorf("status is a %T, expected a word", fields[0])
	}
	if word == "unknown store" {
		return "", ErrHealing
	}
	return word, nil
}

// checkWord returns an error if the reply does not begin with this word.
func checkWord(reply any, expected string) error {
	word, err := replyWord(reply)
	if err == nil && word != expected {
		err = fmt.Errorf("unexpected reply %q, expected %q", word, expected)
	}
	return err
}

// admittedEarlier reads the times of the admissions of what was in flight already.
func admittedEarlier(reply any, decisions []Decision) (map[int]int64, error) {
	fields, err := list(reply, "earlier", -1)
	if err != nil || len(fields) == 0 {
		return nil, err
	}
	if len(fields)%2 != 0 {
		return nil, fmt.Errorf("earlier has %d entries, expected two for each event", len(fields))
	}
	earlier := make(map[int]int64, len(fields)/2)
	for i := 0; i < len(fields); i += 2 {
		n, err := number(fields[i], "event")
		if err != nil {
			return nil, err
		}
		if n < 1 || n > int64(len(decisions)) || decisions[n-1].Verdict != Admitted {
			return nil, fmt.Errorf("event %d was admitted earlier, expected one of %d that is admitted", n,
				len(decisions))
		}
		at, err := number(fields[i+1], "admission")
		if err != nil {
			return nil, err
		}
		earlier[int(n)-1] = at
	}
	return earlier, nil
}

// postedColumns counts the values of each event that was decided again after a post.
const postedColumns = 4

// postedEarlier reads the posts of events that were decided again, and adds them to the refusals.
func postedEarlier(reply any, decisions []Decision) (map[int]posts, error) {
	fields, err := list(reply, "posted", -1)
	if err != nil || len(fields) == 0 {
		return nil, err
	}
	if len(fields)%postedColumns != 0 {
		return nil, fmt.Errorf("posted has %d entries, expected %d for each event", len(fields), postedColumns)
	}
	posted := make(map[int]posts, len(fields)/postedColumns)
	for row := range slices.Chunk(fields, postedColumns) {
		var columns [3]int64
		for i := range columns {
			if columns[i], err = number(row[i], "posted"); err != nil {
				return nil, err
			}
		}
		n, count, begun := columns[0], columns[1], columns[2]
		name, isText := row[3].(string)
		if n < 1 || n > int64(len(decisions)) || count < 1 || begun < 0 || !isText {
			return nil, fmt.Errorf("posted has %v, expected one of %d events and its posts", row, len(decisions))
		}
		posted[int(n)-1] = posts{count: int(count), begun: begun, name: name}
		if d := &decisions[n-1]; d.Verdict != Admitted { // Begin reports the posts of an admitted one
			d.Posts, d.LastPost = int(count), name
		}
	}
	return posted, nil
}

// decisions reads the verdicts and the refusals that they refer to.
func (q admitCall) decisions(verdictsReply, refusalsReply any, batch []Request) ([]Decision, error) {
	verdicts, err := list(verdictsReply, "verdicts", len(batch))
	if err != nil {
		return nil, err
	}
	refusals, err := q.refusals(refusalsReply)
	if err != nil {
		return nil, err
	}
	decisions := make([]Decision, len(batch))
	for i, field := range verdicts {
		verdict, err := number(field, "verdict")
		if err != nil {
			return nil, err
		}
		switch {
		case verdict == 1:
			decisions[i] = Decision{Verdict: Admitted}
		case verdict == 0:
			decisions[i] = Decision{Verdict: Duplicate}
		case verdict < 0 && verdict >= -int64(len(refusals)):
			decisions[i] = refusals[-verdict-1]
			// Also where slots are reserved for others: the wait is finite there.
			decisions[i].Never = decisions[i].Never || batch[i].Cost > decisions[i].Tier.Count
		default:
			return nil, fmt.Errorf("verdict %d, expected 1, 0 or the number of one of %d refusals", verdict,
				len(refusals))
		}
	}
	return decisions, nil
}

// refusalColumns is how many numbers there are for each refusal.
const refusalColumns = 6

// refusals reads the refusals of a reply.
func (q admitCall) refusals(reply any) ([]Decision, error) {
	fields, err := list(reply, "refusals", -1)
	if err != nil {
		return nil, err
	}
	refusals := make([]Decision, len(fields))
	for i, field := range fields {
		row, err := list(field, "refusal", refusalColumns)
		if err != nil {
			return nil, err
		}
		var columns [refusalColumns]int64
		for j := range columns {
			if columns[j], err = number(row[j], "refusal"); err != nil {
				return nil, err
			}
		}
		if refusals[i], err = q.refusal(columns); err != nil {
			return nil, err
		}
	}
	return refusals, nil
}

func (q admitCall) refusal(columns [refusalColumns]int64) (Decision, error) {
	n, tier, used := columns[0], columns[1], columns[2]
	wait, kept, lowerBound := columns[3], columns[4], columns[5]
	if n < 1 || n > int64(len(q.scopes)) {
		return Decision{}, fmt.Errorf("scope %d, expected 1 to %d", n, len(q.scopes))
	}
	s := q.scopes[n-1]
	if tier < 1 || tier > int64(len(s.limit)) {
		return Decision{}, fmt.Errorf("tier %d, expected 1 to %d", tier, len(s.limit))
	}
	if used < 0 || wait < -1 || kept < 0 || kept > MaxCount {
		return Decision{}, fmt.Errorf(
			"used %d, wait %d and kept %d, expected no negative number and at most %d kept",
			used, wait, kept, MaxCount)
	}
	d := Decision{
		Verdict: s.verdict, Tier: s.limit[tier-1], Used: int(used), Reserved: int(kept),
		RetryAfter: max(0, span(wait)),
		AtLeast:    lowerBound == 1, Never: wait < 0 && kept == 0,
	}
	d.RetryAfter, d.AtLeast = q.plan.ends.Bound(s.Scope, time.Now(), d.RetryAfter, d.AtLeast)
	return d, nil
}

// span converts the microseconds of a reply. What no Duration can hold becomes the longest, never a negative
// one.
func span(micros int64) time.Duration {
	return time.Duration(min(micros, math.MaxInt64/int64(time.Microsecond))) * time.Microsecond
}

func number(field any, name string) (int64, error) {
	value, ok := field.(int64)
	if !ok {
		return 0, fmt.Errorf("%s is a %T, expected a whole number", name, field)
	}
	return value, nil
}

// list checks the type and the length of a field; length -1 allows any.
func list(field any, name string, length int) ([]any, error) {
	values, ok := field.([]any)
	if !ok {
		return nil, fmt.Errorf("%s is a %T, expected a list", name, field)
	}
	if length >= 0 && len(values) != length {
		return nil, fmt.Errorf("%s has %d entries, expected %d", name, len(values), length)
	}
	return values, nil
}
