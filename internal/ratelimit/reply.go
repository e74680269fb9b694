package ratelimit

import (
	"fmt"
	"math"
	"time"
)

// decode validates every field of the reply from admit.lua: any deviation from the script's contract is an error, so that
// the reply of a wrong server, proxy or script version is never taken for permission to send.
func (l *Limiter) decode(reply any, batch []Request) ([]Decision, error) {
	fields, err := list(reply, "reply", 4)
	if err != nil {
		return nil, err
	}
	if _, err := number(fields[0], "now"); err != nil {
		return nil, err
	}
	lag, err := number(fields[1], "lag")
	if err != nil {
		return nil, err
	}
	l.lag.Store(lag * int64(time.Microsecond))
	verdicts, err := list(fields[2], "verdicts", len(batch))
	if err != nil {
		return nil, err
	}
	refusals, err := l.refusals(fields[3])
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
			decisions[i] = Decision{Outcome: Admitted}
		case verdict == 0:
			decisions[i] = Decision{Outcome: Duplicate}
		case verdict == 2:
			decisions[i] = Decision{Outcome: Damaged, Key: l.keys.category(batch[i].Category)}
		case verdict < 0 && verdict >= -int64(len(refusals)): // not -verdict: the lowest number has no positive counterpart
			decisions[i], err = refusals[-verdict-1].decision(l.rules, batch[i])
			if err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("verdict %d, expected 2, 1, 0 or the number of one of %d refusals", verdict, len(refusals))
		}
	}
	return decisions, nil
}

// refusal is one row of the reply: four numbers, not yet validated against the rule that they refer to.
type refusal struct{ scope, tier, used, wait int64 }

const refusalFields = 4

func (l *Limiter) refusals(reply any) ([]refusal, error) {
	fields, err := list(reply, "refusals", -1)
	if err != nil {
		return nil, err
	}
	if len(fields)%refusalFields != 0 {
		return nil, fmt.Errorf("%d numbers of refusals, expected %d each", len(fields), refusalFields)
	}
	refusals := make([]refusal, len(fields)/refusalFields)
	for i := range refusals {
		var numbers [refusalFields]int64
		for j := range numbers {
			if numbers[j], err = number(fields[i*refusalFields+j], "refusal"); err != nil {
				return nil, err
			}
		}
		refusals[i] = refusal{scope: numbers[0], tier: numbers[1], used: numbers[2], wait: numbers[3]}
	}
	return refusals, nil
}

func (r refusal) decision(rules Rules, request Request) (Decision, error) {
	outcome, limit := Global, rules.Global
	if r.scope == 1 {
		outcome, limit = Category, rules.LimitFor(request.Category)
	} else if r.scope != 0 {
		return Decision{}, fmt.Errorf("scope %d, expected 0 or 1", r.scope)
	}
	if r.tier < 1 || r.tier > int64(len(limit)) {
		return Decision{}, fmt.Errorf("tier %d, expected 1 to %d", r.tier, len(limit))
	}
	if r.used < 0 || r.wait < -1 {
		return Decision{}, fmt.Errorf("used %d and wait %d, expected no negative number", r.used, r.wait)
	}
	return Decision{
		Outcome:    outcome,
		Tier:       limit[r.tier-1],
		Used:       int(r.used),
		RetryAfter: max(0, span(r.wait)),
	}, nil
}

// span converts the microseconds of a reply. What no Duration can hold becomes the longest, never a negative one.
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
